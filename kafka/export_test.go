package kafka

// ForceRebalance makes the member rejoin, as an assignor or an operator may.
func (s *Source) ForceRebalance() {
	s.mu.Lock()
	client := s.client
	s.mu.Unlock()
	if client != nil {
		client.ForceRebalance()
	}
}

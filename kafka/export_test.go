package kafka

import (
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ForceRebalance makes the member rejoin, as an assignor or an operator may.
func (s *Source) ForceRebalance() {
	s.mu.Lock()
	client := s.client
	s.mu.Unlock()
	if client != nil {
		client.ForceRebalance()
	}
}

// NewClientLogger is the logger that every client gets.
func NewClientLogger(log *slog.Logger) kgo.Logger { return &clientLogger{log: log} }

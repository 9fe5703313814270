package payments

// Fault is what goes wrong with an order's charge.
type Fault uint8

// The faults.
const (
	None Fault = iota
	// Overloaded: the first try is answered 503 with Retry-After, and nothing is charged.
	Overloaded
	// Limited: the first try is answered 429 with Retry-After, and nothing is charged.
	Limited
	// Lost: the order is charged, and the connection closed without an answer.
	Lost
	// Slow: the order is charged, and the answer comes after Config.Slow.
	Slow
	// Unpaid: the account has no funds, 402, until the service is mended.
	Unpaid
)

// faultOf is what goes wrong with this request. It is asked once for each: the first try of a key is over then.
func (s *Service) faultOf(key, order string) Fault {
	if s.cfg.Fault == nil || s.mended.Load() {
		return None
	}
	f := s.cfg.Fault(order)
	if f == Overloaded || f == Limited {
		// Remembered by this process alone: another one fails the first try once more, which harms nobody.
		if _, again := s.tried.LoadOrStore(key, struct{}{}); again {
			return None
		}
	}
	return f
}

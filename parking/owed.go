package parking

import (
	"context"
	"slices"
	"time"
)

// A debt is an end that could not be written, of something that nobody runs any more: until it is, the database takes it
// for a process that has died. It may be paid more than once.
type debt func(ctx context.Context) error

// leaveTimeout bounds the last try to pay.
const leaveTimeout = time.Second

func (s *Source) owe(d debt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.debts = append(s.debts, d)
	s.nudge()
}

// pay writes what is owed, before anything new is claimed.
func (s *Source) pay(ctx context.Context) error {
	for {
		s.mu.Lock()
		debts := slices.Clone(s.debts)
		s.debts = nil
		s.mu.Unlock()
		if len(debts) == 0 {
			return nil
		}
		for i, d := range debts {
			if err := d(ctx); err != nil {
				s.mu.Lock()
				s.debts = append(debts[i:], s.debts...)
				s.mu.Unlock()
				return err
			}
		}
	}
}

// leave pays a last time.
func (s *Source) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	_ = s.pay(ctx) // else leases run out, and it looks as if a process had died: once
}

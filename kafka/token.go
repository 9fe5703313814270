package kafka

import "context"

// token is a lock that may be held for long, and waited for within a context.
type token chan struct{}

func newToken() token { return make(token, 1) }

func (t token) take(ctx context.Context) bool {
	select {
	case t <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t token) lock() { t <- struct{}{} }

func (t token) tryLock() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t token) unlock() { <-t }

package downstream

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/record"
)

// series is the tries of one request outside of a route: one call to the breaker, in one place.
type series struct {
	*transport
	ctx      context.Context // the request's
	call     *Call
	attempts int
	over     atomic.Bool
	charge   atomic.Uint32 // the Charge, once it is over
}

// run ends the call when it failed; a success ends with its body.
func (s *series) run(req *http.Request) (*http.Response, error) {
	body, err := newReplay(req, s.attempts > 1)
	if err != nil {
		s.finish(true, fault.Fault{Class: fault.ClassCancelled}) // the caller's body, not the dependency
		return nil, err
	}
	req = withKey(req)
	for n := 1; ; n++ {
		resp, err := s.try(body.next(req), s.d.cfg.Timeout, s.end)
		if err == nil && resp.StatusCode < http.StatusBadRequest {
			return resp, nil
		}
		f := s.judge(resp, err)
		if n < s.attempts && body.again() && s.pause(req, resp, f, n) {
			continue
		}
		s.finish(true, f)
		return resp, err
	}
}

func (s *series) judge(resp *http.Response, err error) fault.Fault {
	if err == nil {
		err = statusError(resp)
	}
	f, _ := s.d.judge(s.ctx, err)
	return f
}

// pause waits before the next try; false if there is none, and the caller gets what it has. Of a probe there is none: the
// breaker is not closed.
func (s *series) pause(req *http.Request, resp *http.Response, f fault.Fault, n int) bool {
	c := s.d.cfg.Retry
	wait := max(backoff.Jitter(backoff.Exponential(c.Base, c.Cap, n-1)), f.RetryAfter)
	at, bounded := s.ctx.Deadline()
	switch {
	case !repeatable(req, f), f.RetryAfter > s.d.cfg.Timeout, bounded && time.Until(at) <= wait, !s.d.closed():
		return false
	case !s.d.tokens.spend():
		s.d.refused("", &fault.RefusedError{Dependency: s.d.cfg.Name, Reason: fault.ErrNoRetryTokens})
		return false
	}
	keep(resp)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return s.d.closed() // it may have opened meanwhile, by the calls of others
	case <-s.ctx.Done():
		return false
	}
}

func (d *Dependency) closed() bool { return d.State() == record.BreakerClosed }

// repeatable says whether a request that failed so may be sent again: it was not executed, or it does not matter that
// it was.
func repeatable(req *http.Request, f fault.Fault) bool {
	switch f.Class {
	case fault.ClassTransient, fault.ClassBusy:
		return !f.Refused()
	case fault.ClassAmbiguous:
		// Not an answer about its key.
		return f.Evidence("") == fault.SaysDown && (isKeyed(req) || idempotent(req.Method))
	case fault.ClassPermanent, fault.ClassUnavailable, fault.ClassCancelled:
		return false
	}
	return false
}

// end is the end of a success's body, or of a request that could not be made.
func (s *series) end(err error) {
	f, failed := s.d.judge(s.ctx, err)
	s.finish(failed, f)
}

// finish is once: the body may be closed by another goroutine than the one that reads it.
func (s *series) finish(failed bool, f fault.Fault) {
	if s.over.CompareAndSwap(false, true) {
		s.d.places.leave()
		s.charge.Store(uint32(s.call.End(failed, f)))
	}
}

package downstream

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headrace/headrace/fault"
)

// series is the tries of one request outside of a route.
type series struct {
	*transport
	tries

	call    *Call
	timeout time.Duration // of one try
	sent    bool          // a try before may have been carried out, and nothing but its key keeps another one from it
	over    atomic.Bool
	charge  atomic.Uint32 // the Charge, once it is over
}

// run ends the call when it failed; a success ends with its body.
func (s *series) run(req *http.Request) (*http.Response, error) {
	body, err := newReplay(req, s.most > 1)
	if err != nil {
		s.finish(true, fault.Fault{Class: fault.ClassCancelled}, nil) // the caller's body, not the dependency
		return nil, err
	}
	req = withKey(req)
	for {
		resp, err := s.try(body.next(req), s.timeout, s.end)
		if err == nil && resp.StatusCode < http.StatusBadRequest {
			s.succeeded()
			return resp, nil
		}
		f, why := s.judge(resp, err)
		if s.again(req, resp, body, f) {
			continue
		}
		s.finish(true, f, why)
		return s.outcome(resp, err, f)
	}
}

// outcome is the last try's, whose failure is f: that this one was surely not carried out says nothing of those before it,
// and whoever repeats the request may do so under another key. Of an answer [Check] says so.
func (s *series) outcome(resp *http.Response, err error, f fault.Fault) (*http.Response, error) {
	switch {
	case !s.sent || f.Class != fault.ClassTransient:
	case err != nil:
		err = sentBefore(err, f.RetryAfter)
	default:
		resp.Request = resp.Request.WithContext(context.WithValue(resp.Request.Context(), sentKey{}, f.RetryAfter))
	}
	return resp, err
}

type sentKey struct{}

// judge says what a try's failure means, and which error it is: an answer's, if there is no other.
func (s *series) judge(resp *http.Response, err error) (fault.Fault, error) {
	if err == nil {
		err = statusError(resp)
	}
	f, _ := s.call.d.judge(s.ctx, err)
	return f, err
}

// again says whether there is another try, once it has waited for it; else the caller gets what it has.
func (s *series) again(req *http.Request, resp *http.Response, body *replay, f fault.Fault) bool {
	d := s.plan(f, method(req), isKeyed(req))
	if !d.Again {
		return false
	}
	if !body.again() { // too long to be kept
		s.call.d.tokens.giveBack()
		return false
	}
	keep(resp)
	if s.wait(d) {
		s.sent = s.sent || f.Class == fault.ClassAmbiguous && !idempotent(method(req))
		return true
	}
	body.drop()
	return false
}

// end is the end of a success's body, or of a request that could not be made.
func (s *series) end(err error) {
	f, failed := s.call.d.judge(s.ctx, err)
	s.finish(failed, f, err)
}

// finish is once: the body may be closed by another goroutine than the one that reads it.
func (s *series) finish(failed bool, f fault.Fault, why error) {
	if s.over.CompareAndSwap(false, true) {
		s.call.d.places.leave()
		s.charge.Store(uint32(s.call.conclude(failed, f, reason(s.ctx, why))))
	}
}

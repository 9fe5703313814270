package payments

import (
	"bytes"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/headrace/headrace/idempotency"
	"github.com/headrace/headrace/internal/backoff"
)

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

// faulty is what stands between the service and its clients: what is charged is on the books before its answer is lost.
func (s *Service) faulty(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.away.Load() {
			refuse(w, http.StatusServiceUnavailable, "away")
			return
		}
		// The whole body: only then does the server notice that a client has hung up.
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			refuse(w, http.StatusRequestEntityTooLarge, "an order, please")
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		q, _ := parse(body) // what is none has no faults either
		key := r.Header.Get(idempotency.Header)
		if s.bankAway.Load() && s.cfg.Bank != nil && s.cfg.Bank(q.Account) {
			s.refusedByBank(key)
			refuse(w, http.StatusServiceUnavailable, "the account's bank is away")
			return
		}
		if s.cfg.Forgetful {
			r.Header.Set(idempotency.Header, uuid.NewString())
		}
		switch s.firstFault(key, q.Order) {
		case Overloaded:
			later(w, http.StatusServiceUnavailable, "overloaded")
		case Limited:
			later(w, http.StatusTooManyRequests, "too many requests")
		case Lost:
			h.ServeHTTP(&late{w, func() { panic(http.ErrAbortHandler) }}, r) // closes the connection without an answer
		case Slow:
			h.ServeHTTP(&late{w, func() { s.dawdle(r) }}, r)
		case None, Unpaid:
			h.ServeHTTP(w, r)
		}
	})
}

// faultOf is what goes wrong with an order at this moment.
func (s *Service) faultOf(order string) Fault {
	if s.cfg.Fault == nil || s.mended.Load() {
		return None
	}
	return s.cfg.Fault(order)
}

// firstFault is faultOf, without those that are of the first try when it is over. It is asked once for each request.
func (s *Service) firstFault(key, order string) Fault {
	f := s.faultOf(order)
	if f == Overloaded || f == Limited {
		// Remembered by this process alone: another one fails the first try once more, which harms nobody.
		if _, again := s.tried.LoadOrStore(key, struct{}{}); again {
			return None
		}
	}
	return f
}

func (s *Service) refusedByBank(key string) {
	of, _ := s.refusals.LoadOrStore(key, new(atomic.Int64))
	n := of.(*atomic.Int64).Add(1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
}

// late is a writer whose first answer to a charge is held up. A replay is not.
type late struct {
	http.ResponseWriter
	holdUp func()
}

func (l *late) WriteHeader(status int) {
	if status == http.StatusCreated && l.Header().Get(idempotency.ReplayedHeader) == "" {
		l.holdUp()
	}
	l.ResponseWriter.WriteHeader(status)
}

// dawdle waits until nobody waits for the answer any more, or Config.Slow.
func (s *Service) dawdle(r *http.Request) {
	backoff.Wait(r.Context(), s.cfg.Slow)
}

func later(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Retry-After", "1")
	refuse(w, status, text)
}

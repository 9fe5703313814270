package payments

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"
)

// limits of one request.
const (
	maxBody = 4 << 10
	maxTime = 5 * time.Second
)

func (s *Service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", s.post)
	mux.HandleFunc("GET /charges", s.list)
	return mux
}

func (s *Service) post(w http.ResponseWriter, r *http.Request) {
	if s.away.Load() {
		refuse(w, http.StatusServiceUnavailable, "away")
		return
	}
	key := r.Header.Get("Idempotency-Key")
	q, err := read(w, r)
	if err != nil || key == "" || q.Order == "" {
		refuse(w, http.StatusBadRequest, "an order and an Idempotency-Key, please")
		return
	}
	fault := s.faultOf(key, q.Order)
	if status, text := fault.refusal(); status != 0 {
		if status != http.StatusPaymentRequired {
			w.Header().Set("Retry-After", "1")
		}
		refuse(w, status, text)
		return
	}
	s.charge(w, r, key, q, fault)
}

// refusal is the answer of a fault that charges nothing.
func (f Fault) refusal() (status int, text string) {
	switch f {
	case Overloaded:
		return http.StatusServiceUnavailable, "overloaded"
	case Limited:
		return http.StatusTooManyRequests, "too many requests"
	case Unpaid:
		return http.StatusPaymentRequired, "no funds"
	case None, Lost, Slow:
	}
	return 0, ""
}

// charge goes on without its client: one that has hung up is charged all the same, as in life.
func (s *Service) charge(w http.ResponseWriter, r *http.Request, key string, q Request, fault Fault) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), maxTime)
	defer cancel()
	c, fresh, err := s.book.charge(ctx, key, q)
	switch {
	case errors.Is(err, errOtherRequest):
		refuse(w, http.StatusUnprocessableEntity, err.Error())
		return
	case err != nil:
		s.cfg.Logger.Warn("payment service: the book cannot be written", "error", err)
		refuse(w, http.StatusServiceUnavailable, "the book is closed")
		return
	case fresh && fault == Lost:
		panic(http.ErrAbortHandler) // closes the connection without an answer
	case fresh && fault == Slow:
		s.dawdle(r.Context())
	}
	answer(w, http.StatusCreated, c)
}

// dawdle waits until nobody waits for the answer any more, or Config.Slow.
func (s *Service) dawdle(ctx context.Context) {
	timer := time.NewTimer(s.cfg.Slow)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (s *Service) list(w http.ResponseWriter, r *http.Request) {
	charges, err := s.book.all(r.Context())
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, "the book cannot be read")
		return
	}
	answer(w, http.StatusOK, charges)
}

// read takes the whole body: only then does the server notice that a client has hung up.
func read(w http.ResponseWriter, r *http.Request) (q Request, err error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return q, err
	}
	return q, json.Unmarshal(body, &q)
}

func refuse(w http.ResponseWriter, status int, text string) {
	answer(w, status, map[string]string{"error": text})
}

func answer(w http.ResponseWriter, status int, what any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(what) // a client that has hung up asks again
}

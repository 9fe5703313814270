package payments

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/headrace/headrace/idempotency"
)

// limits of one request.
const (
	maxBody = 4 << 10
	maxTime = 5 * time.Second
)

func (s *Service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /charges", s.faulty(s.keys.Tx("charge", http.HandlerFunc(s.charge))))
	mux.HandleFunc("GET /charges", s.list)
	return mux
}

// charge runs once a key, in the transaction that the key's answer is in too.
func (s *Service) charge(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		refuse(w, http.StatusBadRequest, "an order, please")
		return
	}
	q, err := parse(body)
	switch {
	case err != nil:
		refuse(w, http.StatusBadRequest, "an order, please")
		return
	case s.faultOf(q.Order) == Unpaid:
		idempotency.Forget(r.Context()) // who has no funds today may have them when the order comes again
		refuse(w, http.StatusPaymentRequired, "no funds")
		return
	}
	key, _ := idempotency.KeyOf(r.Context())
	c, err := s.book.charge(r.Context(), idempotency.Tx(r.Context()), key.Key, q)
	if err != nil {
		s.cfg.Logger.Warn("payment service: the book cannot be written", "error", err)
		later(w, http.StatusServiceUnavailable, "the book is closed")
		return
	}
	answer(w, http.StatusCreated, c)
}

func (s *Service) list(w http.ResponseWriter, r *http.Request) {
	charges, err := s.book.all(r.Context())
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, "the book cannot be read")
		return
	}
	answer(w, http.StatusOK, charges)
}

var errNoOrder = errors.New("the request names no order")

func parse(body []byte) (q Request, err error) {
	if err := json.Unmarshal(body, &q); err != nil {
		return q, err
	}
	if q.Order == "" {
		return q, errNoOrder
	}
	return q, nil
}

func refuse(w http.ResponseWriter, status int, text string) {
	answer(w, status, map[string]string{"error": text})
}

func answer(w http.ResponseWriter, status int, what any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(what) // a client that has hung up asks again
}

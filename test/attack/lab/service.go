package lab

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/test/attack/load"
	"github.com/headrace/headrace/test/attack/member"
)

// Mood is how a service answers.
type Mood int

const (
	// Well answers at once, but late the first time that it is asked for what says so.
	Well Mood = iota
	// Late does what it is asked, and answers when nobody waits any more.
	Late
	// Failing does what it is asked, and says that it could not.
	Failing
	// Away refuses connections.
	Away
)

// lateness is after what time a late answer comes.
const lateness = member.CallTimeout + time.Second

// Service is what a route of the members calls. It carries out each idempotency key once, and remembers all of them. Safe for
// concurrent use.
type Service struct {
	addr   string
	server *http.Server

	mu    sync.Mutex
	mood  Mood
	asked map[string]bool // by key
}

func openService() (*Service, error) {
	s := &Service{asked: map[string]bool{}, addr: "127.0.0.1:0"}
	return s, s.listen()
}

func (s *Service) listen() error {
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		return err
	}
	s.addr = l.Addr().String()
	s.server = &http.Server{Handler: http.HandlerFunc(s.answer), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.server.Serve(l) }() // it says that it was closed
	return nil
}

func (s *Service) close() error { return s.server.Close() }

// Be gives the service a mood, and makes it well again when mend is called. One at a time.
func (s *Service) Be(m Mood) (mend func() error, err error) {
	s.set(m)
	if m != Away {
		return func() error {
			s.set(Well)
			return nil
		}, nil
	}
	return func() error {
		s.set(Well)
		return s.listen()
	}, s.close()
}

func (s *Service) set(m Mood) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mood = m
}

func (s *Service) answer(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	body, err := io.ReadAll(r.Body)
	if err != nil || key == "" {
		http.Error(w, "no key, or no body", http.StatusBadRequest)
		return
	}
	mood := s.carryOut(key, body)
	if mood == Late {
		backoff.Wait(r.Context(), lateness)
	}
	if mood == Failing {
		http.Error(w, "who knows", http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(member.Receipt{Key: key}) // whoever asked may be gone
}

// carryOut notes what was asked, and says how it is answered.
func (s *Service) carryOut(key string, body []byte) Mood {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := s.asked[key]
	s.asked[key] = true
	var o load.Order
	_ = json.Unmarshal(body, &o) // the members have made it
	if s.mood == Well && o.Do == load.Late && !again {
		return Late
	}
	return s.mood
}

package outbox

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
)

// senders are the sender in use, and those before it that still wait for an answer.
type senders struct {
	current atomic.Pointer[sender]
	nth     int // how many there were before it
	results chan result
	// proven says that current has its producer id, refused that it was refused one.
	proven, refused bool

	life    context.Context // of everything that is sent
	end     context.CancelFunc
	retired sync.WaitGroup
}

// roomForResults spares those who give results the wait for the one who takes them.
const roomForResults = 256

func (s *senders) open(cfg Config) error {
	s.results = make(chan result, roomForResults)
	s.life, s.end = context.WithCancel(context.Background())
	s.proven, s.refused = false, false // of an earlier Run
	first, err := newSender(cfg)
	s.current.Store(first)
	return err
}

func (s *senders) send(events []*event) { s.current.Load().send(s.life, events, s.results) }

// replace leaves the sender in use to what it waits for.
func (s *senders) replace(cfg Config) error {
	next, err := newSender(cfg)
	if err != nil {
		return err
	}
	s.retired.Go(s.current.Swap(next).retire)
	s.proven, s.refused = false, false
	s.nth++
	return nil
}

// note looks at a result for what it says of the sender in use.
func (s *senders) note(r result) {
	s.proven = s.proven || len(r.confirmed) > 0
	s.refused = s.refused || errors.Is(r.err, kerr.ClusterAuthorizationFailed) || errors.Is(r.err, kerr.UnknownServerError)
}

// mend replaces a sender that was refused its producer id, because nobody had allowed the user to write anywhere yet: the
// client believes that for ever.
func (s *senders) mend(cfg Config) error {
	if s.refused && !s.proven {
		return s.replace(cfg)
	}
	return nil
}

// close ends every wait and every connection.
func (s *senders) close() {
	s.end()
	s.current.Load().retire()
	s.retired.Wait()
}

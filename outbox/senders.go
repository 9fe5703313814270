package outbox

import (
	"context"
	"sync"
)

// senders are the sender in use, and those before it that still wait for an answer.
type senders struct {
	current *sender
	results chan result

	life    context.Context // of everything that is sent
	end     context.CancelFunc
	retired sync.WaitGroup
}

// roomForResults spares those who give results the wait for the one who takes them.
const roomForResults = 256

func (s *senders) open(cfg Config) (err error) {
	s.results = make(chan result, roomForResults)
	s.life, s.end = context.WithCancel(context.Background())
	s.current, err = newSender(cfg)
	return err
}

func (s *senders) send(events []*event) { s.current.send(s.life, events, s.results) }

// replace leaves the sender in use to what it waits for.
func (s *senders) replace(cfg Config) error {
	next, err := newSender(cfg)
	if err != nil {
		return err
	}
	old := s.current
	s.retired.Go(old.retire)
	s.current = next
	return nil
}

// close ends every wait and every connection.
func (s *senders) close() {
	s.end()
	s.current.retire()
	s.retired.Wait()
}

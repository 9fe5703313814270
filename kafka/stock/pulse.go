package stock

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/headrace/headrace/record"
)

// asks is how often the coordinator is asked within a session.
const asks = 5

// watchCoordinator ends every claim when the group's coordinator has not answered for a session: it may have given the
// partitions to somebody else. Sarama itself waits for each heartbeat's answer as long as for a join's, and several times.
// So the coordinator is asked beside it, with the connection that looks up offsets.
func (s *Subscriber) watchCoordinator() {
	every := s.cfg.SessionTimeout / asks
	last := time.Now()
	for s.wait(context.Background(), every) {
		if s.askCoordinator(every) {
			last = time.Now()
			continue
		}
		if silent := time.Since(last); silent > s.cfg.SessionTimeout {
			s.lose(silent)
		}
	}
}

// askCoordinator says whether the coordinator has an answer, whatever it is.
func (s *Subscriber) askCoordinator(patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(s.running, patience)
	defer cancel()
	answers, err := s.admin.FetchOffsets(ctx, s.cfg.Group)
	if err == nil {
		err = answers.Error()
	}
	var answer *kerr.Error
	return err == nil || errors.As(err, &answer)
}

// lose ends the claims whose session nobody vouches for. watermill-kafka lets them go, and joins the group again.
func (s *Subscriber) lose(silent time.Duration) {
	s.mu.Lock()
	claims := s.allClaims()
	s.mu.Unlock()
	lost := 0
	for _, o := range claims {
		if o.Hard().Err() == nil {
			lost++
		}
		o.Close(record.ErrLost)
	}
	if lost > 0 && !s.quitting() {
		s.cfg.Hooks.Report(record.Report{
			Kind: record.ReportCoordinatorSilent, Partition: -1, Offset: -1, Age: silent,
			Hint: "the consumer group's coordinator has not answered for a session; the partitions may belong to another member by now",
		})
	}
}

package stock

import (
	"errors"
	"fmt"
	"time"

	"github.com/headrace/headrace/kafka"
)

// tendInterval is how often the watchdogs look.
const tendInterval = time.Second

// tend looks after what nobody tells of: stuck handlers, routes that nobody serves, errors that are over.
func (s *Subscriber) tend() {
	tick := time.NewTicker(tendInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.watchHandlers()
			s.watchRoutes()
			s.problems.settle()
		case <-s.running.Done():
			return
		}
	}
}

// watchHandlers reports records whose attempt lasts too long, and gives up when one lasts longer than MaxPollInterval:
// Sarama's heartbeats go on beside a hung handler for ever.
func (s *Subscriber) watchHandlers() {
	s.mu.Lock()
	claims := s.allClaims()
	s.mu.Unlock()
	for _, o := range claims {
		for _, late := range o.Overdue() {
			if !late.Reported {
				s.cfg.Hooks.Report(late.Report(s.cfg.MaxPollInterval))
			}
			if err := late.Hung(s.cfg.MaxPollInterval); err != nil {
				go s.fail(fmt.Errorf("kafka stock: %w", err))
			}
		}
	}
}

// watchRoutes reports routes whose subscription has ended and that nobody serves: their records hold the offset.
func (s *Subscriber) watchRoutes() {
	s.mu.Lock()
	gone := s.routes.Gone(s.cfg.SessionTimeout)
	s.mu.Unlock()
	for _, r := range gone {
		s.cfg.Hooks.Report(r.ReportGone())
	}
}

// Live fails when the process should be restarted: the Subscriber has given up.
func (s *Subscriber) Live() error {
	if err := s.gaveUp.Load(); err != nil {
		return *err
	}
	return nil
}

// Ready fails when the Subscriber does not read what it should: it has stopped, holds a topic, or one of its members has
// no session, as it has none while the group rebalances.
func (s *Subscriber) Ready() error {
	switch {
	case s.Live() != nil:
		return s.Live()
	case s.quitting():
		return kafka.ErrClosed
	}
	return errors.Join(s.problems.err(), s.joined())
}

// errNotJoined is what Ready says before the first subscription.
var errNotJoined = errors.New("kafka stock: not in its consumer group yet")

func (s *Subscriber) joined() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.members) == 0 {
		return errNotJoined
	}
	var errs []error
	for topic, m := range s.members {
		if !m.joined.Load() {
			errs = append(errs, fmt.Errorf("%w: topic %q", errNotJoined, topic))
		}
	}
	return errors.Join(errs...)
}

// Stats gives the state of every claim. Committed is what the claim began with: Sarama does not tell what it has committed
// since. Nothing is ever Paused.
func (s *Subscriber) Stats() []kafka.PartitionStats {
	s.mu.Lock()
	claims := s.allClaims()
	s.mu.Unlock()
	stats := make([]kafka.PartitionStats, 0, len(claims))
	for _, o := range claims {
		stats = append(stats, o.stats())
	}
	return stats
}

func (o *owned) stats() kafka.PartitionStats {
	load := o.Load()
	st := kafka.PartitionStats{
		Topic: o.Topic, Partition: o.Partition,
		Committed: max(o.from.InitialOffset(), -1), Watermark: -1, HighWatermark: o.from.HighWaterMarkOffset(), Lag: -1,
		InFlight: load.Records, InFlightBytes: load.Bytes, OldestAge: load.Oldest, Behind: load.Behind,
		Holding: o.m.s.problems.kind(o.Topic, o.Partition),
	}
	switch m, ok := o.Watermark(); {
	case ok:
		st.Watermark = m.Offset
	case load.First >= 0:
		st.Watermark = load.First
	default:
		st.Watermark = st.Committed
	}
	if st.Watermark >= 0 {
		st.Lag = max(0, st.HighWatermark-st.Watermark)
	}
	return st
}

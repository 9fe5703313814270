package kafka

import (
	"errors"
	"time"
)

// PartitionStats is the state of one claim at one moment.
type PartitionStats struct {
	Topic     string
	Partition int32
	// Committed is the committed offset, Watermark the one below which everything is settled; -1 if unknown.
	Committed, Watermark int64
	// HighWatermark is the end of the log when it was last read or asked for, and Lag how far the watermark is behind it;
	// -1 if unknown, as it is for a second after an assignment. Transaction markers at the end of a log count as lag: nothing reads them.
	HighWatermark, Lag int64
	// InFlight and InFlightBytes are what is in memory, from the watermark on.
	InFlight      int
	InFlightBytes int64
	// OldestAge is how long ago the oldest record that is not settled was fetched, 0 if there is none.
	OldestAge time.Duration
	// Behind is the age of the same record by its own timestamp: what the topic's retention is counted by. A restart
	// does not make it younger.
	Behind time.Duration
	// Paused says that nothing is fetched at the moment: memory is full, or there is a problem.
	Paused bool
	// Holding is the kind of the partition's problem, as in its report; "" for none.
	Holding string
}

// Stats gives the state of every claim.
func (s *Source) Stats() []PartitionStats {
	claims := s.allClaims()
	stats := make([]PartitionStats, 0, len(claims))
	for _, o := range claims {
		stats = append(stats, s.statsOf(o))
	}
	return stats
}

func (s *Source) statsOf(o *owned) PartitionStats {
	load := o.Load()
	st := PartitionStats{
		Topic: o.topic, Partition: o.partition,
		Committed: s.committed(o), Watermark: -1, HighWatermark: o.high.Load(), Lag: -1,
		InFlight: load.Records, InFlightBytes: load.Bytes, OldestAge: load.Oldest, Behind: load.Behind,
		Paused: o.paused.Load(), Holding: s.problems.kind(o.tp),
	}
	switch m, ok := o.Watermark(); {
	case ok:
		st.Watermark = m.Offset
	case load.First >= 0:
		st.Watermark = load.First
	case st.Committed >= 0:
		st.Watermark = st.Committed
	default:
		st.Watermark = o.start.Load() // where a group begins that has committed nothing
	}
	if st.Watermark >= 0 && st.HighWatermark >= 0 {
		st.Lag = max(0, st.HighWatermark-st.Watermark)
	}
	return st
}

// committed is what this claim has committed, else what it found.
func (s *Source) committed(o *owned) int64 {
	if c := o.committed.Load(); c >= 0 {
		return c
	}
	if e, ok := s.client.CommittedOffsets()[o.topic][o.partition]; ok {
		return e.Offset
	}
	return -1
}

// errNotJoined is what Ready says before the first assignment.
var errNotJoined = errors.New("kafka source: not in its consumer group yet")

// Live fails when the process should be restarted: the Source has given up.
func (s *Source) Live() error {
	if err := s.gaveUp.Load(); err != nil {
		return *err
	}
	return nil
}

// Ready fails when the Source does not read what it should: it is not in its group, has stopped, or holds a partition.
func (s *Source) Ready() error {
	switch {
	case s.Live() != nil:
		return s.Live()
	case s.quitting():
		return ErrClosed
	case s.problems.err() != nil:
		return s.problems.err()
	case !s.pulse.joined.Load():
		return errNotJoined
	}
	return nil
}

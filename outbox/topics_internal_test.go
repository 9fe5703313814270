package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// TestTopics_ANewSenderBeginsWithOneEvent is that of TestForwarder_ANewClientWritesNoEventBeforeARefusedOne, for every way to
// a limit that another sender has earned.
func TestTopics_ANewSenderBeginsWithOneEvent(t *testing.T) {
	t.Parallel()
	ten := func() (events []*event) {
		for i := range 10 {
			events = append(events, &event{id: int64(i), topic: "t"})
		}
		return events
	}
	const first, second = 0, 1
	warm := func() topics {
		ts := topics{}
		require.Len(t, ts.cut(ten(), first), 1)
		ts.of("t").answered(result{topic: "t", sent: 1}, time.Now())
		require.Len(t, ts.cut(ten(), first), 8)
		return ts
	}

	t.Run("WhereTheLimitWasThere", func(t *testing.T) {
		t.Parallel()
		ts := warm()
		ts.of("t").answered(result{topic: "t", sent: 8}, time.Now())
		require.Len(t, ts.cut(ten(), second), 1)
	})
	t.Run("WhereTheAnswerToTheOldOneComesLate", func(t *testing.T) {
		t.Parallel()
		for _, err := range []error{nil, kerr.MessageTooLarge} {
			ts := warm()
			ts.giveUp()
			ts.of("t").answered(result{topic: "t", sent: 8, err: err}, time.Now())
			require.Len(t, ts.cut(ten(), second), 1)
			ts.of("t").answered(result{topic: "t", sent: 1}, time.Now())
			require.Len(t, ts.cut(ten(), second), 8)
		}
	})
}

// TestForwarder_WhatAnOldClientIsAnsweredSaysNothingOfTheNewOne is the regression of a client without a producer id that was
// kept, because one before it had got a late confirmation: it sent nothing any more.
func TestForwarder_WhatAnOldClientIsAnsweredSaysNothingOfTheNewOne(t *testing.T) {
	t.Parallel()
	f := &Forwarder{cfg: Config{}.withDefaults(), topics: topics{}, underway: underway{packs: map[int64]*row{}}}
	e := &event{id: 1, topic: "t", of: &row{id: 1, left: 1}}
	f.topics.cut([]*event{e}, f.senders.nth)
	f.senders.nth++
	f.answered(result{topic: "t", sent: 1, confirmed: []*event{e}})
	require.False(t, f.senders.proven)
	f.topics.cut([]*event{e}, f.senders.nth)
	f.answered(result{topic: "t", sent: 1, confirmed: []*event{e}})
	require.True(t, f.senders.proven)
}

package outbox

import (
	"testing"
	"testing/synctest"
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

// TestForwarder_AClientIsGivenTheTimeThatItNeedsToBegin is the regression of a client that needs more than a second to connect:
// it was replaced by one that needed as long, with one event of each topic each, for ever.
func TestForwarder_AClientIsGivenTheTimeThatItNeedsToBegin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		proven  bool
		answers map[string]time.Duration // none for a topic that says nothing
		lasts   time.Duration
		late    int
	}{
		"NewAndEverybodyAnswers":  {false, map[string]time.Duration{"a": 1500 * time.Millisecond, "b": 1600 * time.Millisecond}, 1600 * time.Millisecond, 0},
		"NewAndOneSaysNothing":    {false, map[string]time.Duration{"a": 1500 * time.Millisecond}, 2500 * time.Millisecond, 1},
		"NewAndNobodySaysAThing":  {false, nil, 7 * time.Second, 2},
		"KnownAndOneSaysNothing":  {true, map[string]time.Duration{"a": 10 * time.Millisecond}, time.Second, 1},
		"KnownAndAllAnswerAtOnce": {true, map[string]time.Duration{"a": 0, "b": 0}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &Forwarder{cfg: Config{}.withDefaults(), topics: topics{}, underway: underway{packs: map[int64]*row{}}}
				f.senders.results, f.senders.proven = make(chan result, roomForResults), c.proven
				events := map[string]*event{"a": {id: 1, topic: "a", of: &row{id: 1, left: 1}}, "b": {id: 2, topic: "b", of: &row{id: 2, left: 1}}}
				f.topics.cut([]*event{events["a"], events["b"]}, f.senders.nth)
				for topic, after := range c.answers {
					time.AfterFunc(after, func() {
						f.senders.results <- result{topic: topic, sent: 1, confirmed: []*event{events[topic]}}
					})
				}
				began := time.Now()
				f.awaitWave(t.Context())
				require.Equal(t, c.lasts, time.Since(began))
				require.Equal(t, c.late, f.topics.awaited())
			})
		})
	}
}

package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/record"
)

// rewind moves the consumer group, which is stopped, back to the start of the source topic.
func (w *world) rewind() {
	w.t.Helper()
	var start kadm.Offsets
	for p := range kafkatest.Committed(w.t, w.brokers, "billing", "orders") {
		start.AddOffset("orders", p, 0, -1)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	require.NoError(w.t, kafkatest.Admin(w.t, w.brokers).CommitAllOffsets(ctx, "billing", start))
}

// A record whose identity could not be read dies under its place. Replayed once it can be, it is one with what the
// producer sends under that identity, whichever came first, and reading the source again changes nothing.
func TestReplay_OfAnIdentityThatCanBeReadByNowHasOneEffect(t *testing.T) {
	t.Parallel()
	event := []byte(`{"id":"e-1","meta":{"id":"e-1"}}`)
	for name, sentAgainFirst := range map[string]bool{"SentAgainFirst": true, "ReplayedFirst": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			start := func(path string) func() {
				r := w.route("charge-order")
				r.Identity = []dedup.Resolver{dedup.Field(path)}
				return w.startWith(r)
			}
			stop := start("meta") // an object
			w.produce("orders", 1, time.Now(), []byte("k"), event)
			require.Equal(t, map[record.Outcome]int{record.Dead: 1}, w.outcomes(1))
			require.Contains(t, w.ok("dlq", "ls", "--topic", "orders.dlq", "--state").out, "dead")
			stop()

			stop = start("meta.id")
			sendAgain := func() record.Outcome {
				w.produce("orders", 2, time.Now(), []byte("k"), event)
				return w.next().Outcome
			}
			replay := func() record.Outcome {
				w.ok("dlq", "replay", "--topic", "orders.dlq", "--yes")
				return w.next().Outcome
			}
			if sentAgainFirst {
				require.Equal(t, []record.Outcome{record.Effected, record.Duplicate}, []record.Outcome{sendAgain(), replay()})
			} else {
				require.Equal(t, []record.Outcome{record.Effected, record.Duplicate}, []record.Outcome{replay(), sendAgain()})
			}
			w.requireEffects(1)
			require.NotContains(t, w.ok("dlq", "ls", "--topic", "orders.dlq", "--state").out, "dead ")
			stop()

			w.rewind()
			stop = start("meta.id")
			require.Zero(t, w.outcomes(2)[record.Dead])
			stop()
			w.rewind() // the deploy is rolled back
			start("meta")
			got := w.outcomes(2)
			require.Equal(t, 1, got[record.Duplicate], "the one that was replayed: %v", got)
			require.Equal(t, 1, got[record.Dead], "the other one was never known by its place: %v", got)
			w.requireEffects(1)
		})
	}
}

// Bytes that cannot be read, with the id of a record that was effected, are dead however often they are replayed.
func TestState_OfGarbageWithTheIDOfAnEffectedRecordIsDead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	id := record.Header{Key: record.UUIDHeader, Value: []byte("order-1")}
	w.produce("orders", 1, time.Now(), []byte("k"), []byte(`{"id":"order-1"}`), id)
	w.produce("orders", 1, time.Now(), []byte("k"), []byte(`{{{`), id)
	require.Equal(t, map[record.Outcome]int{record.Effected: 1, record.Dead: 1}, w.outcomes(2))
	for range 3 {
		list := w.ok("dlq", "ls", "--topic", "orders.dlq", "--state").out
		require.NotContains(t, list, "effected")
		require.Contains(t, list, "dead")
		w.ok("dlq", "replay", "--topic", "orders.dlq", "--yes")
		require.Equal(t, record.Dead, w.next().Outcome)
	}
	_, _, dead := w.states()
	require.Equal(t, 1, dead)
	w.requireEffects(1)
}

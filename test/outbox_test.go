package e2e

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/outbox"
	"github.com/headrace/headrace/record"
)

// The members of these tests forward the outbox to the topic that they consume.
func TestOutbox(t *testing.T) {
	t.Parallel()

	// Written, and not deleted yet: whoever goes on writes it again.
	t.Run("AForwarderThatIsKilledBeforeItDeletesRepeatsIdsAndNoEffect", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Real(t).Brokers(), 4)
		s := w.setup()
		s.Session, s.Forwards = shortSession, true
		told := w.publish(1000, 20)
		hold, err := w.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = hold.Exec(t.Context(), `select from headrace.outbox for update`)
		require.NoError(t, err)
		p := w.spawn(s)
		const deleting = `from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like 'delete from headrace.outbox%'`
		w.eventually("events are written, and their deletion waits", func() bool { return w.number(`select count(*) `+deleting) > 0 })
		p.kill()
		// A backend that waits for a lock does not see that its client is gone, and would delete after all.
		_, err = w.pool.Exec(t.Context(), `select pg_terminate_backend(pid) `+deleting)
		require.NoError(t, err)
		require.NoError(t, hold.Rollback(t.Context()))

		last := w.spawn(s)
		w.eventually("the outbox is empty", func() bool { return w.outbox() == 0 })
		w.drained()
		last.quit()
		repeats := w.inOrder(told)
		require.Positive(t, repeats)
		require.Equal(t, tally{Records: 1000 + repeats, Effected: 1000, Duplicate: repeats}, w.one())
	})

	t.Run("BrokersThatAreAwayLoseNothingAndItDrainsByItself", func(t *testing.T) {
		t.Parallel()
		cluster := kafkatest.Start(t, 1)
		w := newWorld(t, cluster.Brokers(), 4)
		s := w.setup()
		s.Forwards = true
		behind := make(chan record.Report, 16)
		m := w.run(s, &record.Hooks{OnReport: func(r record.Report) {
			if r.Kind == record.ReportOutboxBehind {
				behind <- r
			}
		}}, s.scripted()...)
		told := w.publish(100, 20)
		w.eventually("they arrive", func() bool { return w.effected() == 100 })

		cluster.Kill(t, 1)
		for range 10 {
			told = append(told, w.publish(100, 20)...) // its transactions go on
		}
		select {
		case r := <-behind:
			require.Contains(t, r.Err.Error(), "events wait")
		case <-time.After(patience):
			t.Fatal("nothing reports that the outbox is behind")
		}
		require.Equal(t, 1000, w.outbox())
		w.eventually("its size is told", func() bool { return m.metric("headrace_outbox_rows") == 1000 })

		cluster.Restart(t, 1)
		w.renewAdmin()
		w.eventually("the outbox is empty", func() bool { return w.outbox() == 0 })
		w.drained()
		m.quit()
		repeats := w.inOrder(told)
		require.Equal(t, tally{Records: 1100 + repeats, Effected: 1100, Duplicate: repeats}, w.one())
	})
}

// publish commits n events of so many keys, of all of which a transaction has some, and gives their ids, in order.
func (w *world) publish(n, keys int) (ids []string) {
	w.t.Helper()
	value, err := json.Marshal(order{})
	require.NoError(w.t, err)
	const together = 100
	for len(ids) < n {
		msgs := make([]*message.Message, 0, together)
		for i := range together {
			msg := message.NewMessage(uuid.NewString(), value)
			kafka.SetKey(msg, fmt.Append(nil, "key-", i%keys))
			msgs, ids = append(msgs, msg), append(ids, msg.UUID)
		}
		require.NoError(w.t, pgx.BeginFunc(w.t.Context(), w.pool, func(tx pgx.Tx) error { //nolint:forbidigo // no handler's
			return outbox.Publisher(tx).Publish(w.topic, msgs...)
		}))
	}
	return ids
}

// outbox is how many events wait.
func (w *world) outbox() int {
	w.t.Helper()
	return w.number(`select coalesce(sum(events), 0) from headrace.outbox`)
}

func (w *world) number(sql string) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.pool.QueryRow(w.t.Context(), sql).Scan(&n))
	return n
}

// inOrder requires that the topic has each event, for the first time behind those before it of its key, and gives how many
// it has again.
func (w *world) inOrder(told []string) (repeats int) {
	w.t.Helper()
	place := map[string]int{}
	for i, id := range told {
		place[id] = i
	}
	seen, last := map[string]bool{}, map[string]int{}
	for _, r := range w.read(w.topic) {
		id, key := string(r.Headers[0].Value), string(r.Key)
		if seen[id] {
			repeats++
			continue
		}
		require.Contains(w.t, place, id)
		if before, ok := last[key]; ok {
			require.Less(w.t, before, place[id], "first writes of key %s", key)
		}
		seen[id], last[key] = true, place[id]
	}
	require.Len(w.t, seen, len(told))
	return repeats
}

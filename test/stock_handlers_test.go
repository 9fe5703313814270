package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/internal/kafkatest"
)

// Two topics, one process: one member, so that their partitions move in one rebalance.
func oneMember(t *testing.T) {
	fake := kafkatest.Fake(t)
	w := newWorld(t, fake.ListenAddrs(), 2)
	s := w.setup()
	other := s.route("other", func(context.Context, pgx.Tx, consumer.Event[order]) error { return nil })
	other.Topic = kafkatest.Topic(t, w.brokers, 2)
	m := w.run(s, nil, append(s.scripted(), other)...)
	w.produce(w.orders(10, 5, order{})...)
	w.drained()
	groups, err := w.admin.DescribeGroups(t.Context(), w.group)
	require.NoError(t, err)
	require.Len(t, groups[w.group].Members, 1)
	m.quit()
	require.Equal(t, tally{Records: 10, Effected: 10}, w.one())
}

// A middleware writes into the payload in place and sets metadata, and then the handler fails.
func changedMessage(t *testing.T) {
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	s := w.setup()
	s.Options.Middlewares = []message.HandlerMiddleware{func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			for i := range msg.Payload {
				msg.Payload[i] = 'x'
			}
			msg.Metadata.Set("changed", "yes")
			return next(msg)
		}
	}}
	rs := append(w.orders(5, 5, order{Do: "fail"}), w.orders(5, 5, order{})...)
	w.produce(rs...)
	m := w.start(s)
	w.drained()
	w.produce(fresh(rs)...) // the hash is of what was delivered: duplicates, not conflicts
	w.drained()
	m.quit()
	require.Equal(t, tally{Records: 20, Effected: 5, Dead: 5, Duplicate: 10}, w.one())
}

// One key fails until it is told to succeed; the other keys of its partition are done meanwhile, its own wait in order.
func retryBlocks(t *testing.T) {
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	s := w.setup()
	s.Options.BackoffBase, s.Options.BackoffCap = 100*time.Millisecond, 100*time.Millisecond
	s.Options.Attempts, s.Options.AttemptTimeout = 200, time.Second
	fixed := make(chan struct{})
	m := w.run(s, nil, s.route("post", func(ctx context.Context, tx pgx.Tx, e consumer.Event[order]) error {
		select {
		case <-fixed:
			e.Data.Do = ""
		default:
		}
		return act(ctx, tx, "post", e)
	}))
	w.produce(w.record("bad", order{Do: "flaky", N: 1000}))
	w.produce(w.record("bad", order{}), w.record("bad", order{}))
	w.produce(w.orders(100, 10, order{})...)
	w.past(99)
	require.Equal(t, 100, w.effected(), "followers of a failed record ran before it")
	require.Zero(t, w.committed()[0])
	close(fixed)
	w.drained()
	m.quit()
	require.Equal(t, tally{Records: 103, Effected: 103}, w.one())
}

func otherBytes(t *testing.T) {
	w := newWorld(t, kafkatest.Real(t).Brokers(), 1)
	w.routes = []string{"post", "notify"}
	a, b := w.record("k", order{}), w.record("k", order{N: 7})
	b.Headers = a.Headers
	w.produce(a, b)
	w.produce(fresh([]*kgo.Record{a, b})...)
	m := w.start(w.setup())
	w.drained()
	m.quit()
	for route, got := range w.audit() {
		require.Equal(t, tally{Records: 4, Effected: 1, Duplicate: 1, Dead: 2}, got, route)
		require.Equal(t, map[string]int{"id_conflict": 2}, w.reasons(route), route)
	}
}

// 23505 in the handler's own table is a business error. A "duplicate message" it is not.
func uniqueViolation(t *testing.T) {
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	_, err := w.pool.Exec(t.Context(), `create table numbers (n int primary key)`)
	require.NoError(t, err)
	s := w.setup()
	m := w.run(s, nil, s.route("post", func(ctx context.Context, tx pgx.Tx, e consumer.Event[order]) error {
		if err := write(ctx, tx, "post", e); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `insert into numbers values ($1)`, e.Data.N)
		return err
	}))
	w.produce(w.record("a", order{N: 1}), w.record("b", order{N: 1}), w.record("c", order{N: 2}))
	w.drained()
	m.quit()
	require.Equal(t, tally{Records: 3, Effected: 2, Dead: 1}, w.one())
	require.Equal(t, map[string]int{"permanent": 1}, w.reasons("post"))
}

// The handler cancels a context of its own. Nobody is shutting down: the record is judged like any other.
func ownCancel(t *testing.T) {
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	s := w.setup()
	m := w.run(s, nil, s.route("post", func(ctx context.Context, tx pgx.Tx, e consumer.Event[order]) error {
		if e.Data.Do == "cancel" {
			own, cancel := context.WithCancel(ctx)
			cancel()
			return own.Err()
		}
		return write(ctx, tx, "post", e)
	}))
	w.produce(w.record("a", order{Do: "cancel"}), w.record("a", order{}))
	w.drained()
	m.quit()
	require.Equal(t, tally{Records: 2, Effected: 1, Dead: 1}, w.one())
	require.Equal(t, map[string]int{"exhausted": 1}, w.reasons("post"))
}

// The handler writes, fails to write more, and says that all is well.
func swallowed(t *testing.T) {
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	s := w.setup()
	m := w.run(s, nil, s.route("post", func(ctx context.Context, tx pgx.Tx, e consumer.Event[order]) error {
		if err := write(ctx, tx, "post", e); err != nil {
			return err
		}
		if e.Data.Do == "swallow" {
			_, err := tx.Exec(ctx, `select 1/0`)
			if err == nil {
				return errors.New("one divided by zero is something")
			}
		}
		return nil
	}))
	w.produce(w.orders(20, 10, order{})...)
	w.produce(w.orders(3, 3, order{Do: "swallow"})...)
	w.produce(w.orders(20, 10, order{})...)
	w.produce(w.record("last", order{}))
	w.drained()
	m.quit()
	require.Equal(t, tally{Records: 44, Effected: 41, Dead: 3}, w.one())
}

package consumer

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

const effectSQL = `insert into effects (route, id, kind) values ($1, $2, $3)`

func queueItem(b *pgx.Batch, e Event[item]) error {
	b.Queue(effectSQL, "post", e.Data.ID, e.Data.Kind)
	switch e.Data.Kind {
	case "flaky":
		if e.Attempt == 1 {
			return fault.Transient(errors.New("not now"))
		}
	case "poison":
		b.Queue("select 1/0")
	case "unsendable":
		b.Queue("select $1::int", "seven")
	case "skip":
		return fault.Skip("cancelled")
	case "panic":
		panic("boom")
	}
	return nil
}

func applyItems(ctx context.Context, tx pgx.Tx, es []Event[item]) error {
	ids, kinds, failed := make([]string, len(es)), make([]string, len(es)), fault.Members{}
	broken := error(nil)
	for i, e := range es {
		ids[i], kinds[i] = e.Data.ID, e.Data.Kind
		switch e.Data.Kind {
		case "flaky":
			if e.Attempt == 1 {
				failed[i] = fault.Transient(errors.New("not now"))
			}
		case "poison":
			failed[i] = errors.New("no such account")
		case "unsendable":
			broken = errors.New("one of them is bad") // and nobody says which
		case "skip":
			failed[i] = fault.Skip("cancelled")
		case "panic":
			panic("boom")
		}
	}
	if _, err := tx.Exec(ctx, `insert into effects (route, id, kind)
		select 'post', * from unnest($1::text[], $2::text[])`, ids, kinds); err != nil {
		return err
	}
	if len(failed) > 0 {
		return failed
	}
	return broken
}

func TestKinds(t *testing.T) {
	t.Parallel()
	// passing is a user's middleware that counts what passes it.
	passing := func(n *atomic.Int64) Options {
		return Options{Middlewares: []message.HandlerMiddleware{func(h message.HandlerFunc) message.HandlerFunc {
			return func(m *message.Message) ([]*message.Message, error) {
				n.Add(1)
				return h(m)
			}
		}}}
	}
	var queued, grouped atomic.Int64
	for name, route := range map[string]AnyRoute{
		"Queue":                QueueRoute[item]{Name: "post", Topic: "orders", Queue: queueItem},
		"QueueWithMiddlewares": QueueRoute[item]{Name: "post", Topic: "orders", Queue: queueItem, Options: passing(&queued)},
		"Batch":                BatchRoute[item]{Name: "post", Topic: "orders", Apply: applyItems},
		"BatchWithMiddlewares": BatchRoute[item]{Name: "post", Topic: "orders", Apply: applyItems, Options: passing(&grouped)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.produce(items("ok", 200)...)
			b.produce(items("flaky", 5)...)
			b.produce(items("poison", 4)...)
			b.produce(items("unsendable", 2)...)
			b.produce(items("skip", 3)...)
			b.produce(items("panic", 2)...)
			b.produce(&kgo.Record{Topic: "orders", Value: []byte("{")})
			b.produce(items("ok", 7)...) // once more: a producer's duplicates
			r := b.start(b.config(), route)
			require.Equal(t, map[record.Outcome]int{
				record.Effected: 205, record.Duplicate: 7, record.Skipped: 3, record.Dead: 9,
			}, b.outcomes(224))
			r.stop()
			require.Len(t, b.effects("post"), 205)
			require.EqualValues(t, 9, b.length("orders.dlq"))
			require.Zero(t, b.behind())
			text := scrape(t, r.c.cfg.Registry)
			for _, want := range []string{
				`headrace_records_total{outcome="effected",route="post"} 205`,
				`headrace_records_total{outcome="skipped",route="post"} 3`,
				`headrace_attempts_total{class="transient",outcome="failed",route="post"} 5`,
				`headrace_dead_letters_total{reason="permanent",route="post"} 6`,
				`headrace_dead_letters_total{reason="panic",route="post"} 2`,
				`headrace_dead_letters_total{reason="undecodable",route="post"} 1`,
			} {
				require.Contains(t, text, want+"\n")
			}
		})
	}
	t.Cleanup(func() {
		require.GreaterOrEqual(t, queued.Load(), int64(200), "queued handlers have a message a record")
		require.Less(t, grouped.Load(), int64(200), "grouped ones have a message a group")
	})
}

func TestKinds_WithoutAHandlerAreRefused(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Brokers: []string{"localhost:1"}, Group: "billing"},
		QueueRoute[item]{Name: "queues", Topic: "orders"}, BatchRoute[item]{Name: "writes", Topic: "orders"})
	require.ErrorContains(t, err, `route "queues" has no Queue`)
	require.ErrorContains(t, err, "set QueueRoute.Queue")
	require.ErrorContains(t, err, `route "writes" has no Apply`)
	require.ErrorContains(t, err, "set BatchRoute.Apply")
}

func TestKinds_AreWhatTheyAre(t *testing.T) {
	t.Parallel()
	require.Equal(t, dedup.Queued, dedup.KindOf(QueueRoute[item]{Queue: queueItem}.spec().work))
	require.Equal(t, dedup.Grouped, dedup.KindOf(BatchRoute[item]{Apply: applyItems}.spec().work))
}

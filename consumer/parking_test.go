package consumer

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/parking"
)

// parks are options of a route that parks after one failure, for a moment.
func parks() Options {
	return Options{Attempts: 1, Park: &parking.Policy{Base: 50 * time.Millisecond, Cap: 100 * time.Millisecond, Rounds: 1000}}
}

// partner is what the handlers of a test need.
type partner struct{ down atomic.Bool }

var errPartner = errors.New("the partner does not answer")

func (p *partner) ask(kind string) error {
	if kind == "needs partner" && p.down.Load() {
		return fault.Transient(errPartner)
	}
	return nil
}

// kinds are a route of each kind whose items of one kind need the partner.
func (p *partner) kinds(t *testing.T) map[string]AnyRoute {
	t.Helper()
	dependency, err := downstream.New(downstream.Config{Name: "partner"})
	require.NoError(t, err)
	apply := func(ctx context.Context, tx pgx.Tx, e Event[item]) error {
		return errors.Join(p.ask(e.Data.Kind), effect(ctx, tx, "post", e.Data))
	}
	return map[string]AnyRoute{
		"Route": Route[item]{Name: "post", Topic: "orders", Apply: apply, Options: parks()},
		"QueueRoute": QueueRoute[item]{Name: "post", Topic: "orders", Options: parks(), Queue: func(b *pgx.Batch, e Event[item]) error {
			b.Queue(effectSQL, "post", e.Data.ID, e.Data.Kind)
			return p.ask(e.Data.Kind)
		}},
		"BatchRoute": BatchRoute[item]{Name: "post", Topic: "orders", Options: parks(), Apply: func(ctx context.Context, tx pgx.Tx, es []Event[item]) error {
			failed := fault.Members{}
			for i, e := range es {
				if err := errors.Join(p.ask(e.Data.Kind), effect(ctx, tx, "post", e.Data)); err != nil {
					failed[i] = err
				}
			}
			if len(failed) > 0 {
				return failed
			}
			return nil
		}},
		"CallRoute": CallRoute[item, bool]{
			Name: "post", Topic: "orders", Dependency: dependency, Repeat: RepeatSafe, Options: parks(),
			Call: func(context.Context, Event[item]) (bool, error) { return true, nil },
			Apply: func(ctx context.Context, tx pgx.Tx, e Event[item], _ bool) error {
				return apply(ctx, tx, e)
			},
		},
	}
}

// parkedRecords are the rows of what is parked.
func (b *bed) parkedRecords() (n int) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), `select count(*) from headrace.parked_records`).Scan(&n))
	return n
}

// keyed is an item's record with another key than its id.
func keyed(key string, i item) *kgo.Record {
	r := of(i)
	r.Key = []byte(key)
	return r
}

func TestPark(t *testing.T) {
	t.Parallel()

	for kind := range new(partner).kinds(t) {
		t.Run("WhatIsExhaustedWaitsInPostgresInTheOrderOfItsKey/"+kind, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			var p partner
			p.down.Store(true)
			b.produce(keyed("k", item{"1", "needs partner"}), keyed("k", item{"2", ""}), keyed("k", item{"3", "needs partner"}))
			b.produce(items("other", 5)...)
			r := b.start(b.config(), p.kinds(t)[kind])
			b.eventually("other keys flow", func() bool { return len(b.effects("post")) == 5 })
			b.eventually("everything is out of Kafka's way", func() bool { return b.behind() == 0 })
			require.Equal(t, 3, b.parkedRecords())
			p.down.Store(false)
			b.eventually("what was parked has had its effect", func() bool { return b.parkedRecords() == 0 })
			r.stop()
			require.Equal(t, []string{"1", "2", "3"}, b.effects("post")[5:])
			require.Zero(t, b.length("orders.dlq"))
		})
	}

	t.Run("ARestartFindsWhatIsParked", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		var p partner
		p.down.Store(true)
		b.produce(keyed("k", item{"1", "needs partner"}), keyed("k", item{"2", ""}))
		r := b.start(b.config(), p.kinds(t)["Route"])
		b.eventually("both are parked", func() bool { return b.parkedRecords() == 2 })
		r.stop()
		require.Zero(t, b.behind(), "they are out of Kafka's way")
		p.down.Store(false)
		r = b.start(b.config(), p.kinds(t)["Route"])
		b.eventually("what was parked has had its effect", func() bool { return b.parkedRecords() == 0 })
		r.stop()
		require.Equal(t, []string{"1", "2"}, b.effects("post"))
	})
}

func TestPark_Refused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Options)
		what   string
	}{
		"OrderByPartition": {
			func(o *Options) { o.Order = kafka.ByPartition },
			`route "post" parks, and keeps the order of whole partitions`,
		},
		"TheOffsetStore": {
			func(o *Options) { o.Store = dedup.ByOffset },
			`route "post" parks, and its Store is the offset store`,
		},
		"RoundsBeyondItsAge": {
			func(o *Options) { o.Park = &parking.Policy{Base: 24 * time.Hour} },
			"10 rounds wait 240h0m0s in all",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, route := good(t)
			route.Park = &parking.Policy{}
			c.change(&route.Options)
			_, err := New(cfg, route)
			require.ErrorContains(t, err, c.what)
			var start *StartError
			require.ErrorAs(t, err, &start)
			require.Len(t, start.Problems, 1)
		})
	}
}

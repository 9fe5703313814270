package consumer

import (
	"context"
	"errors"
	"strings"
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
	"github.com/headrace/headrace/record"
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

	t.Run("ARecordThatNeverReturnsIsDeadAndNotParkedForEver", func(t *testing.T) {
		t.Parallel()
		b, leave := newBed(t), make(chan struct{})
		route := Route[item]{Name: "post", Topic: "orders", Options: parks(), Apply: func(ctx context.Context, tx pgx.Tx, e Event[item]) error {
			if e.Data.Kind == "hangs" {
				<-leave // and ignores its context
			}
			return effect(ctx, tx, "post", e.Data)
		}}
		route.AttemptTimeout = 500 * time.Millisecond
		cfg := b.config()
		cfg.HardGrace = 500 * time.Millisecond
		b.produce(of(item{"1", "hangs"}))
		b.produce(items("other", 5)...)
		r := b.start(cfg, route)
		b.eventually("it is dead", func() bool { return b.length("orders.dlq") == 1 })
		b.eventually("everything is done", func() bool { return b.behind() == 0 && len(b.effects("post")) == 5 })
		require.Zero(t, b.parkedRecords())
		close(leave)
		r.stop()
		require.Len(t, b.effects("post"), 5)
	})

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

func TestPark_Full(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var p partner
	p.down.Store(true)
	route := p.kinds(t)["Route"].(Route[item])
	route.Park = &parking.Policy{Base: time.Hour, MaxRecords: 2}
	held := make(chan record.HoldInfo, 100)
	cfg := b.config()
	cfg.Hooks.OnHold = func(i record.HoldInfo) { held <- i }
	b.produce(items("needs partner", 2)...)
	r := b.start(cfg, route)
	require.Equal(t, map[record.Outcome]int{record.Parked: 2}, b.outcomes(2))
	require.NoError(t, r.c.Ready())
	b.produce(of(item{"late", "needs partner"}))
	i := <-held
	require.Equal(t, "parking", i.Dependency)
	require.ErrorIs(t, i.Err, parking.ErrFull)
	b.eventually("readiness says so", func() bool {
		code, why := r.ask("/readyz")
		return code == 503 && strings.Contains(why, `route "post" holds: its parking is full`) &&
			strings.Contains(why, "; hint: ")
	})
	require.NoError(t, r.c.Live())
	b.produce(items("well", 3)...)
	require.Equal(t, map[record.Outcome]int{record.Effected: 3}, b.outcomes(3), "who does not want to park goes on")
	p.down.Store(false)
	_, err := b.pool.Exec(t.Context(), `update headrace.parked_keys set due = now()`)
	require.NoError(t, err)
	require.Equal(t, map[record.Outcome]int{record.Effected: 2, record.Parked: 1}, b.outcomes(3), "what is parked goes on, and makes room")
	b.eventually("the hold is over", func() bool { return r.c.Ready() == nil })
	r.stop()
}

func TestPark_Metrics(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var p partner
	p.down.Store(true)
	looked := make(chan record.ParkingInfo, 100)
	cfg := b.config()
	cfg.Hooks.OnParking = func(i record.ParkingInfo) { looked <- i }
	b.produce(keyed("k", item{"1", "needs partner"}), keyed("k", item{"2", ""}))
	r := b.start(cfg, p.kinds(t)["Route"])
	b.eventually("both are parked", func() bool { return b.parkedRecords() == 2 })
	for i := range looked {
		if i.Records == 2 && i.Oldest > 0 {
			break
		}
	}
	_, page := r.ask("/metrics")
	require.Contains(t, page, `headrace_parked_records{route="post"} 2`)
	b.eventually("a further round is counted", func() bool {
		_, page := r.ask("/metrics")
		return !strings.Contains(page, `headrace_parked_tries_total{outcome="parked",route="post"} 0`)
	})
	p.down.Store(false)
	b.eventually("all have left", func() bool {
		_, page := r.ask("/metrics")
		return strings.Contains(page, `headrace_parked_tries_total{outcome="effected",route="post"} 2`) &&
			strings.Contains(page, `headrace_parked_rounds_count{route="post"} 2`) &&
			strings.Contains(page, `headrace_parked_rounds_bucket{route="post",le="0"} 1`)
	})
	r.stop()
}

func TestPark_TakenAwayWhileRecordsAreParkedIsRefused(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var p partner
	p.down.Store(true)
	b.produce(items("needs partner", 1)...)
	r := b.start(b.config(), p.kinds(t)["Route"])
	require.Equal(t, 1, b.outcomes(1)[record.Parked])
	r.stop()
	c, err := New(b.config(), effectRoute("post"))
	require.NoError(t, err)
	require.ErrorContains(t, c.Check(t.Context()), `route "post" has 1 record parked, and no Park`)
	require.ErrorContains(t, c.Run(t.Context()), `route "post" has 1 record parked, and no Park`)
}

// A record is parked; another one with its id, under another key, has its effect; the first is tried years later. The inbox
// must know the second then.
func TestPark_TheInboxForgetsNothingThatCameWhileARecordWasParked(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var p partner
	p.down.Store(true)
	b.produce(items("needs partner", 1)...)
	r := b.start(b.config(), p.kinds(t)["Route"])
	require.Equal(t, 1, b.outcomes(1)[record.Parked])
	r.stop()
	since := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	_, err := b.pool.Exec(t.Context(), `update headrace.parked_keys set since = $1`, since)
	require.NoError(t, err)
	horizon := func(route AnyRoute) time.Time {
		c, err := New(b.config(), route)
		require.NoError(t, err)
		at, err := c.horizonOfRoute(c.specs[0])(t.Context())
		require.NoError(t, err)
		return at
	}
	require.True(t, since.Equal(horizon(p.kinds(t)["Route"])))
	require.True(t, horizon(effectRoute("another")).IsZero())
}

func TestPark_Retention(t *testing.T) {
	t.Parallel()
	found := topics{"orders": {Name: "orders", Retention: 24 * time.Hour}}
	cfg, route := good(t)
	route.Park = &parking.Policy{}

	c, err := New(cfg, route)
	require.NoError(t, err)
	require.Equal(t, 8*24*time.Hour, c.retention(c.specs[0], found), "MaxAge and a day")

	cfg.InboxRetention = 48 * time.Hour
	c, err = New(cfg, route)
	require.NoError(t, err)
	ps := c.retentionProblems(found)
	require.Len(t, ps, 1)
	require.Equal(t, `InboxRetention 48h is shorter than what the Park of route "post" keeps, 168h: a record could come again after it is forgotten`, ps[0].What)
	require.Equal(t, "raise InboxRetention to 168h, leave it 0, or lower Park.MaxAge", ps[0].Fix)
}

func TestPark_KeyRetention(t *testing.T) {
	t.Parallel()
	found := topics{"orders": {Name: "orders", Retention: 24 * time.Hour}}
	problems := func(kept time.Duration) []Problem {
		cfg, _ := good(t)
		d, err := downstream.New(downstream.Config{Name: "payments", KeyRetention: kept})
		require.NoError(t, err)
		c, err := New(cfg, CallRoute[placed, bool]{
			Name: "post", Topic: "orders", Dependency: d, Repeat: RepeatKeyed, Options: Options{Park: &parking.Policy{}},
			Call:  func(context.Context, Event[placed]) (bool, error) { return true, nil },
			Apply: func(context.Context, pgx.Tx, Event[placed], bool) error { return nil },
		})
		require.NoError(t, err)
		return c.keyProblems(found)
	}
	require.Empty(t, problems(192*time.Hour))
	ps := problems(191 * time.Hour)
	require.Len(t, ps, 1)
	require.Contains(t, ps[0].What, `topic "orders" keeps 24h + the Park of route "post" keeps 168h = 192h`)
	require.Contains(t, ps[0].Fix, "or lower Park.MaxAge")

	for _, name := range []string{"orders.dlq", "orders.billing.replay"} {
		found[name] = kafka.Topic{Name: name, Retention: 24 * time.Hour}
	}
	require.Empty(t, problems((3*24+2*168)*time.Hour), "what was replayed is parked again")
	require.NotEmpty(t, problems((3*24+2*168)*time.Hour-1))
}

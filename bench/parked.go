package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/bench/internal/load"
	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

const (
	parkingGroup = "bench-parking"
	parkingRoute = "post"
)

var errLater = errors.New("the partner does not answer")

// parkOthers leaves so many records of the route parked, each with a key of its own, for a day.
func (b *bench) parkOthers(ctx context.Context, n int) error {
	if err := migrations.Up(ctx, b.db); err != nil {
		return err
	}
	inbox, err := dedup.Open(ctx, b.db, dedup.Config{})
	if err != nil {
		return err
	}
	defer inbox.Close()
	if _, err := inbox.Route(ctx, dedup.RouteConfig{Group: parkingGroup, Name: parkingRoute}); err != nil {
		return err
	}
	const consumer = `(select id from headrace.consumers where consumer_group = 'bench-parking' and route = 'post')`
	for _, sql := range []string{
		`truncate headrace.parked_keys, headrace.parked_records, headrace.parked_counts`,
		fmt.Sprintf(`insert into headrace.parked_keys (consumer_id, key_id, due, round)
			select %s, hashint8extended(g, 1), now() + interval '1 day', 1 from generate_series(1, %d) g`, consumer, n),
		fmt.Sprintf(`insert into headrace.parked_records (consumer_id, key_id, topic_id, part, off, message_id, envelope)
			select %s, hashint8extended(g, 1), gen_random_uuid(), 1, g, gen_random_uuid(), convert_to(repeat('x', 300), 'UTF8')
			from generate_series(1, %d) g`, consumer, n),
		fmt.Sprintf(`insert into headrace.parked_counts select %s, 0, %d`, consumer, n),
		`vacuum analyze headrace.parked_keys`, `vacuum analyze headrace.parked_records`, `checkpoint`,
	} {
		if _, err := b.db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// rates are records a second.
type rates struct{ in, out float64 }

// parkedRun lets a route park a topic, makes all of it due, and lets it have its effects. Both are measured from the first
// record's handler: in to the last one that is parked and settled, out to the last one that has left.
func (b *bench) parkedRun(ctx context.Context, topic *load.Topic, others int64) (r rates, err error) {
	if err := load.Reset(ctx, b.db, topic.Keys); err != nil {
		return r, err
	}
	p := &parked{settled: make(chan struct{}, topic.Records)}
	c, err := p.consumer(b, topic)
	if err != nil {
		return r, err
	}
	running, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()
	defer func() {
		end()
		err = errors.Join(err, <-ended)
	}()
	for range topic.Records {
		select {
		case <-p.settled:
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
	r.in = p.rate(topic.Records)
	p.well.Store(true)
	if _, err := b.db.Exec(ctx, `update headrace.parked_keys set due = now() where due < now() + interval '2 hours'`); err != nil {
		return r, err
	}
	if err := b.left(ctx, others); err != nil {
		return r, err
	}
	r.out = p.rate(topic.Records)
	return r, load.Verify(ctx, b.db, topic, load.Inbox)
}

// left waits until nothing is parked but the others.
func (b *bench) left(ctx context.Context, others int64) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var n int64
		if err := b.db.QueryRow(ctx, `select sum(records)::bigint from headrace.parked_counts`).Scan(&n); err != nil || n == others {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// parked is a route that parks everything until its partner is well.
type parked struct {
	well    atomic.Bool
	settled chan struct{}

	mu    sync.Mutex
	began time.Time
}

// begin notes the first record's handler.
func (p *parked) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.began.IsZero() {
		p.began = time.Now()
	}
}

// rate is of n records since the first one's handler; the next one is another first.
func (p *parked) rate(n int) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	rate := float64(n) / time.Since(p.began).Seconds()
	p.began = time.Time{}
	return rate
}

func (p *parked) consumer(b *bench, topic *load.Topic) (*consumer.Consumer, error) {
	hooks := &record.Hooks{OnSettle: func(i record.SettleInfo) {
		if i.Outcome == record.Parked {
			p.settled <- struct{}{}
		}
	}}
	return consumer.New(consumer.Config{
		Brokers: b.brokers, Group: parkingGroup, DB: b.db, Migrate: true, CreateDeadLetterTopics: true, Hooks: hooks,
	}, consumer.Route[load.Posting]{
		Name: parkingRoute, Topic: topic.Name,
		Options: consumer.Options{Park: &parking.Policy{MaxRecords: 1 << 40}},
		Apply: func(ctx context.Context, tx pgx.Tx, e consumer.Event[load.Posting]) error {
			p.begin()
			if !p.well.Load() {
				return fault.Park(errLater, time.Hour)
			}
			_, err := tx.Exec(ctx, `update accounts set balance = balance + $1 where id = $2`, e.Data.Amount, e.Data.Account)
			return err
		},
	})
}

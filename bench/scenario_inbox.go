package main

import (
	"context"
	"fmt"
	"time"

	"github.com/headrace/headrace/bench/internal/load"
	"github.com/headrace/headrace/bench/internal/result"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/migrations"
)

// remembered is what runs find in Headrace's inbox: rows of the route of one consumer group, which all of them take. The zero
// value is an empty inbox, and a group a run.
type remembered struct {
	group string
	rows  int
}

// inboxSize asks what it costs to have dealt with many records before. Both contenders take turns, so that an inbox has been
// filled anew before each run over it, and every topic is new: what has been dealt with would have no effect.
func inboxSize(ctx context.Context, b *bench) error {
	defer func() { b.inbox = remembered{} }()
	c := headrace("apply", "inbox")
	if !b.joins(c.name) {
		return nil
	}
	for _, rows := range []int{0, b.backlog} {
		if err := b.remember(ctx, rows); err != nil {
			return err
		}
		of := c
		if rows > 0 {
			of.name += "/remembers"
		}
		var runs []result.Run
		for round := range b.rounds {
			topic, err := load.Fill(ctx, b.brokers, b.shape(8))
			if err != nil {
				return err
			}
			run, err := b.once(ctx, topic, of, nil)
			if err != nil {
				return err
			}
			b.progress(trial{shape: topic.Shape, rounds: b.rounds}, round, of, run, nil)
			runs = append(runs, run)
		}
		b.results = append(b.results, result.Of("inbox-size", of.name, 8, b.records, runs))
		half := result.Of("inbox-size", c.name, 8, b.records, runs).Rate / 2
		if first, ok := result.Best(b.results, "inbox-size", 8, func(name string) bool { return name == c.name }); ok {
			half = first.Rate / 2
		}
		if err := b.loads(ctx, "inbox-size-50", []contender{of}, func(contender) float64 { return half }); err != nil {
			return err
		}
	}
	return nil
}

// reset is what precedes a run.
func (b *bench) reset(ctx context.Context, topic *load.Topic) error {
	if b.inbox.rows == 0 {
		return load.Reset(ctx, b.db, topic.Keys)
	}
	if err := b.db.QueryRow(ctx, `select count(*) from headrace.inbox`).Scan(&topic.Remembered); err != nil {
		return err
	}
	return load.ResetBeside(ctx, b.db, topic.Keys)
}

// remember fills the inbox. The index is built over what is there, which is quick, with the space that one has in which
// random ids have been entered one after the other.
func (b *bench) remember(ctx context.Context, rows int) error {
	b.inbox = remembered{}
	if rows == 0 {
		return nil
	}
	b.inbox = remembered{fmt.Sprintf("bench-%d", time.Now().UnixNano()), rows}
	if err := migrations.Up(ctx, b.db); err != nil {
		return err
	}
	inbox, err := dedup.Open(ctx, b.db, dedup.Config{})
	if err != nil {
		return err
	}
	defer inbox.Close()
	if _, err := inbox.Route(ctx, dedup.RouteConfig{Group: b.inbox.group, Name: parkingRoute}); err != nil {
		return err
	}
	for _, sql := range []string{
		`truncate headrace.inbox`,
		`alter table headrace.inbox drop constraint inbox_pkey`,
		fmt.Sprintf(`insert into headrace.inbox (message_id, consumer_id, value_hash, coordinates)
			select gen_random_uuid(), (select id from headrace.consumers where consumer_group = '%s'), hashint8extended(g, 1), hashint8extended(g, 2)
			from generate_series(1, %d) g`, b.inbox.group, rows),
		`alter table headrace.inbox add constraint inbox_pkey primary key (consumer_id, message_id) with (fillfactor = 70)`,
		`vacuum analyze headrace.inbox`, `checkpoint`,
	} {
		if _, err := b.db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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

// past is an inbox in a database of its own: an empty one and a full one can take turns.
type past struct {
	suffix string // of the contender's name
	db     *pgxpool.Pool
	inbox  remembered

	rates, loads []result.Run
}

// inboxSize asks what it costs to have dealt with many records before, by how producers name their records. Every topic is
// new: what has been dealt with would have no effect.
func inboxSize(ctx context.Context, b *bench) error {
	c := headrace("apply", "inbox")
	if !b.joins(c.name) {
		return nil
	}
	defer func(db *pgxpool.Pool, dsn string) {
		b.db, b.dsn, b.inbox, b.ids = db, dsn, remembered{}, load.RandomIDs
	}(b.db, b.dsn)
	for _, of := range []struct {
		name string
		ids  load.IDs
	}{{"random-ids", load.RandomIDs}, {"ordered-ids", load.OrderedIDs}, {"no-ids", load.NoIDs}} {
		b.ids = of.ids
		if err := b.inboxOf(ctx, c, of.name); err != nil {
			return fmt.Errorf("%s: %w", of.name, err)
		}
	}
	return nil
}

func (b *bench) inboxOf(ctx context.Context, c contender, ids string) (err error) {
	server, name := b.db, c.name
	var both []*past
	defer func() {
		for _, m := range both {
			m.db.Close()
			_, dropped := server.Exec(ctx, `drop database `+m.db.Config().ConnConfig.Database)
			err = errors.Join(err, dropped)
		}
		b.db, b.dsn = server, server.Config().ConnString()
	}()
	for _, rows := range []int{0, b.backlog} {
		m, err := b.past(ctx, server, ids, rows)
		if m != nil {
			both = append(both, m)
		}
		if err != nil {
			return err
		}
	}
	for round := range b.rounds {
		for _, m := range both {
			b.with(m)
			c.name = name + m.suffix
			topic, err := load.Fill(ctx, b.brokers, b.shape(8))
			if err != nil {
				return err
			}
			run, err := b.once(ctx, topic, c, nil)
			if err != nil {
				return err
			}
			b.progress(trial{shape: topic.Shape, rounds: b.rounds}, round, c, run, nil)
			m.rates = append(m.rates, run)
		}
	}
	for _, m := range both {
		b.results = append(b.results, result.Of("inbox-size", name+m.suffix, 8, b.records, m.rates))
	}
	half := b.results[len(b.results)-2].Rate / 2 // of the empty one
	for round := range b.rounds {
		for _, m := range both {
			b.with(m)
			c.name = name + m.suffix
			run, err := b.underLoad(ctx, c, half)
			if err != nil {
				return err
			}
			b.sayLoad("inbox-size-50", round, c, run, nil)
			m.loads = append(m.loads, run)
		}
	}
	for _, m := range both {
		b.results = append(b.results, result.Of("inbox-size-50", name+m.suffix, 8, int(half*b.load.Seconds()), m.loads))
	}
	return nil
}

func (b *bench) with(m *past) {
	b.db, b.dsn, b.inbox = m.db, m.db.Config().ConnString(), m.inbox
}

// past creates a database and fills its inbox.
func (b *bench) past(ctx context.Context, server *pgxpool.Pool, ids string, rows int) (*past, error) {
	database := fmt.Sprintf("inbox_%d", rows)
	if _, err := server.Exec(ctx, `create database `+pgx.Identifier{database}.Sanitize()); err != nil {
		return nil, err
	}
	db, err := pgxpool.New(ctx, fmt.Sprintf("%s dbname=%s", keywords(server), database))
	if err != nil {
		return nil, err
	}
	m := &past{suffix: "/" + ids, db: db}
	if rows > 0 {
		m.suffix += "/remembers"
		m.inbox = remembered{fmt.Sprintf("bench-%d", time.Now().UnixNano()), rows}
	}
	return m, b.fill(ctx, m)
}

// keywords is the server's address, in the notation of libpq.
func keywords(server *pgxpool.Pool) string {
	c := server.Config().ConnConfig
	return fmt.Sprintf("host=%s port=%d user=%s password=%s", c.Host, c.Port, c.User, c.Password)
}

// Ids of earlier records: random ones, and such as begin with their time, a record a millisecond. The keys of records without
// an id rise with the offset: what other partitions have had is all over the index.
const (
	randomSQL  = `gen_random_uuid()`
	orderedSQL = `(lpad(to_hex((extract(epoch from now()) * 1000)::bigint - %d + g), 12, '0') || '7' || substr(md5(g::text), 1, 3) || '8' || substr(md5(g::text), 4, 15))::uuid`
)

// fill remembers. The index is built over what is there, which is quick, with the space that one has in which random ids have
// been entered one after the other.
func (b *bench) fill(ctx context.Context, m *past) error {
	if err := migrations.Up(ctx, m.db); err != nil {
		return err
	}
	if m.inbox.rows == 0 {
		return nil
	}
	inbox, err := dedup.Open(ctx, m.db, dedup.Config{})
	if err != nil {
		return err
	}
	defer inbox.Close()
	if _, err := inbox.Route(ctx, dedup.RouteConfig{Group: m.inbox.group, Name: parkingRoute}); err != nil {
		return err
	}
	id, space := randomSQL, 70
	if b.ids == load.OrderedIDs {
		id, space = fmt.Sprintf(orderedSQL, m.inbox.rows), 90
	}
	for _, sql := range []string{
		`alter table headrace.inbox drop constraint inbox_pkey`,
		fmt.Sprintf(`insert into headrace.inbox (message_id, consumer_id, value_hash, coordinates)
			select %s, (select id from headrace.consumers where consumer_group = '%s'), hashint8extended(g, 1), hashint8extended(g, 2)
			from generate_series(1, %d) g`, id, m.inbox.group, m.inbox.rows),
		fmt.Sprintf(`alter table headrace.inbox add constraint inbox_pkey primary key (consumer_id, message_id) with (fillfactor = %d)`, space),
		`alter index headrace.inbox_pkey reset (fillfactor)`,
		`vacuum analyze headrace.inbox`, `checkpoint`,
	} {
		if _, err := m.db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
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

package parking

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/migrations"
)

// Store is the parked records of one route, in Postgres. It has no state of its own and is safe for concurrent use, by any
// number of processes; it needs no closing. The pool is the caller's.
type Store struct {
	pool     *pgxpool.Pool
	policy   Policy
	consumer int32
	sql      statements
}

// Open finds the parking of a route that the inbox knows: open its inbox first. It refuses a policy that cannot work, a
// database without the schema (migrations.ErrVersion), one that may lose what it has committed, a role that may not write,
// and a route of the offset store, which takes whatever is behind its offset for done and would never run a parked record.
func Open(ctx context.Context, pool *pgxpool.Pool, group, route string, p Policy) (*Store, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if err := migrations.Check(ctx, pool); err != nil {
		return nil, fmt.Errorf("parking: %w", err)
	}
	s := &Store{pool: pool, policy: p.WithDefaults(), sql: theStatements()}
	var store int
	var durable, missing string
	err := pool.QueryRow(ctx, openSQL, group, route).Scan(&s.consumer, &store, &durable, &missing)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, fmt.Errorf("parking: %w: route %q of consumer group %q", ErrNoRoute, route, group)
	case err != nil:
		return nil, fmt.Errorf("parking: find route %s of group %s: %w", route, group, err)
	case store != 0:
		return nil, fmt.Errorf("parking: route %s has the offset store, for which a parked record would be done: only a route with the inbox can park", route)
	case durable == "off":
		return nil, errors.New("parking: synchronous_commit is off, so a crash of the database could lose records whose offsets are committed already: set it to on (or local) for this role or database")
	case missing != "":
		return nil, fmt.Errorf("parking: this role lacks %s: grant it all on tables and sequences in schema headrace", missing)
	}
	return s, nil
}

const openSQL = `select id, store::int, current_setting('synchronous_commit'), (
	select coalesce(string_agg(p || ' on headrace.' || t, ', ' order by t, p), '')
	from unnest(array['parked_keys', 'parked_records', 'parked_counts']) t, unnest(array['select', 'insert', 'update', 'delete']) p
	where not has_table_privilege('headrace.' || t, p) and (p <> 'delete' or t <> 'parked_counts'))
from headrace.consumers where consumer_group = $1 and route = $2`

// Policy is the store's, with its defaults.
func (s *Store) Policy() Policy { return s.policy }

// transact does what queue puts into the batch in one transaction and one round trip, COMMIT included. Everything that
// goes through it may be done twice: so an error, also one after which nobody knows whether COMMIT was done, is answered
// by doing it again.
func (s *Store) transact(ctx context.Context, queue func(b *pgx.Batch)) error {
	return s.open(ctx, func(b *pgx.Batch) {
		queue(b)
		b.Queue("commit").Exec(committed)
	}, nil)
}

// open sends the batch at the head of a transaction. then, if there is one, looks at the answers and says whether to
// commit.
func (s *Store) open(ctx context.Context, queue func(b *pgx.Batch), then func() error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	b := &pgx.Batch{}
	// Whatever the database's default is: the statements rely on seeing what was committed before each of them.
	b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	b.Queue(s.sql.settings)
	queue(b)
	err = conn.SendBatch(ctx, b).Close()
	if err == nil && then != nil {
		if err = then(); err == nil {
			err = commit(ctx, conn.Conn())
		}
	}
	if err != nil && !conn.Conn().IsClosed() {
		rollback(ctx, conn.Conn())
	}
	return err
}

func commit(ctx context.Context, conn *pgx.Conn) error {
	tag, err := conn.Exec(ctx, "commit")
	if err != nil {
		return err
	}
	return committed(tag)
}

func committed(tag pgconn.CommandTag) error {
	if tag.String() != "COMMIT" {
		return errors.New("commit was answered with " + tag.String())
	}
	return nil
}

// rollback leaves a connection that can be used again; one that does not answer is closed by its pool.
func rollback(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = conn.Exec(ctx, "rollback")
}

package dedup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// Consumer is one route of a consumer group as the database knows it, without an inbox that runs: for an operator who
// says what becomes of a record. It is safe for concurrent use and needs no closing; the pool is the caller's.
type Consumer struct {
	pool  *pgxpool.Pool
	id    int32
	store Store
}

// FindConsumer finds a route that has run at least once on this database. One that has not is an *UnknownRouteError: to
// make it here would hide a misspelt name. The error is ErrNoSchema where there is no inbox, or another version's.
func FindConsumer(ctx context.Context, pool *pgxpool.Pool, group, route string) (*Consumer, error) {
	if err := migrations.Check(ctx, pool); err != nil {
		if errors.Is(err, migrations.ErrVersion) {
			return nil, fmt.Errorf("%w: %w", ErrNoSchema, err)
		}
		return nil, fmt.Errorf("look at the inbox's schema: %w", err)
	}
	c := &Consumer{pool: pool}
	err := pool.QueryRow(ctx, consumerIDSQL, group, route).Scan(&c.id, &c.store)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, unknownRoute(ctx, pool, group, route)
	}
	if err != nil {
		return nil, fmt.Errorf("find route %s of group %s: %w", route, group, err)
	}
	return c, nil
}

// UnknownRouteError says that the inbox knows no such route, and which it knows.
type UnknownRouteError struct {
	Group, Route string
	// Known are the routes that it knows, at most 50, as "group/route".
	Known []string
}

func (e *UnknownRouteError) Error() string {
	return fmt.Sprintf("the inbox knows no route %q of consumer group %q", e.Route, e.Group)
}

// Hint lists what there is.
func (e *UnknownRouteError) Hint() string {
	if len(e.Known) == 0 {
		return "it knows no route at all: is this the consumer's database, and has the consumer run?"
	}
	return "it knows these, as group/route: " + strings.Join(e.Known, ", ")
}

func unknownRoute(ctx context.Context, pool *pgxpool.Pool, group, route string) error {
	rows, err := pool.Query(ctx, knownSQL)
	if err != nil {
		return fmt.Errorf("list the routes that there are: %w", err)
	}
	known, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list the routes that there are: %w", err)
	}
	return &UnknownRouteError{Group: group, Route: route, Known: known}
}

// Look says what the inbox knows of r, which has its identity, at this moment: Fresh is nothing. Of a dead record it
// tells why it is dead.
func (c *Consumer) Look(ctx context.Context, r *record.Record) (Answer, Grave, error) {
	cols, answer := c.columns(r), Fresh
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return unseen, Grave{}, fmt.Errorf("look at the inbox: %w", err)
	}
	defer conn.Release()
	if c.byOffset(r) {
		done, err := c.isDone(ctx, conn.Conn(), r)
		if err != nil {
			return unseen, Grave{}, fmt.Errorf("look at the offset store: %w", err)
		}
		if done {
			return Own, Grave{}, nil
		}
	}
	err = readAnswers(ctx, conn.Conn(), seenSQL, c.id, cols, func(_ int, a Answer) { answer = a })
	var g Grave
	if err == nil && (answer == DeadOwn || answer == DeadReplay) {
		err = conn.QueryRow(ctx, verdictsSQL, c.id, array(cols.ids)).Scan(nil, &g.Reason, &g.Err)
		if errors.Is(err, pgx.ErrNoRows) { // a replay has taken it over in between
			err = nil
		}
	}
	if err != nil {
		return unseen, Grave{}, fmt.Errorf("look at the inbox: %w", err)
	}
	return answer, g, nil
}

// buryLockTimeout is how long Consumer.Bury waits for a transaction that has the record in hand: longer than most
// handlers run, and not longer than somebody watches a prompt.
const buryLockTimeout = 5 * time.Second

// Bury says that r, which has its identity, is dead. It writes the dead row as Route.Bury does, in a statement that looks
// at the same time whether the inbox knows r already, and produces nothing: when the route's consumer comes to r, now or
// after its next start, it finds the row, writes the dead letter with g's reason and text, and goes on. A call that runs
// at this moment runs to its end, and what it did is not undone.
//
//   - Buried: it is dead now;
//   - Own, OwnSkipped, Duplicate, DeadOwn, IDConflict: nothing was written, because the route has dealt with it, or will
//     without help: another record has its identity.
//
// Of a route with the offset store, a transaction that has r in hand at this moment is rolled back, and comes again without
// r: whether it is committed before or after this decides.
//
// A transaction that has r in hand at this moment is waited for, 5 seconds at most: then the error is fault.Busy and
// nothing was written. After any other error the row may or may not be there; asking again is safe.
func (c *Consumer) Bury(ctx context.Context, r *record.Record, g Grave) (Answer, error) {
	b := newBurial(r, g, c.store == ByOffset)
	for ctx.Err() == nil {
		answer, err := c.transact(ctx, b)
		switch {
		case isCode(err, codeLock):
			return unseen, fault.Busy(errBusy)
		case err != nil:
			return unseen, fmt.Errorf("write the dead row: %w", err)
		case answer == Fresh, answer == DeadReplay:
			return Buried, nil
		case answer != unseen:
			return answer, nil
		}
	}
	return unseen, context.Cause(ctx)
}

func (c *Consumer) transact(ctx context.Context, b *burial) (Answer, error) {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return unseen, err
	}
	defer conn.Release()
	answers, err := writeGraves(ctx, conn.Conn(), c.id, buryLockTimeout, []*burial{b})
	var own bool
	if err == nil && c.byOffset(b.r) && isGrave(answers[0]) {
		dug, digErr := c.dig(ctx, conn.Conn(), b.r)
		own, err = !dug, digErr
	}
	if err == nil && !own {
		err = commit(ctx, conn.Conn())
	}
	if (err != nil || own) && !conn.Conn().IsClosed() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), acquireTimeout)
		defer cancel()
		_, _ = conn.Exec(ctx, "rollback")
	}
	switch {
	case err != nil:
		return unseen, err
	case own:
		return Own, nil
	}
	return answers[0], nil
}

// commit is without a time limit of the server's: cancelled while it waits for a replica, it would be done all the same.
func commit(ctx context.Context, conn *pgx.Conn) error {
	tag, err := conn.Exec(ctx, "set local statement_timeout = 0; commit")
	if err == nil && tag.String() != "COMMIT" {
		err = errors.New("commit was answered with " + tag.String())
	}
	return err
}

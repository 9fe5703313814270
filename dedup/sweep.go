package dedup

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/internal/backoff"
)

const (
	// sweepPages is how much of the table one step reads: half a megabyte, a few thousand rows.
	sweepPages = 64
	// sweepIdle is the share of the time that the sweep leaves to others: it waits so many times as long as a step took.
	sweepIdle = 4
	// horizonMargin is for clocks: a record's timestamp is the producer's or the broker's, a row's is the database's.
	horizonMargin = time.Hour
	// horizonAge is how long an answer of Horizon is good for. It only moves forward while the consumer runs.
	horizonAge = time.Minute
)

// sweeper deletes a route's rows that are older than its retention, page by page.
//
// Where it stands is in the database, and a step is one short transaction that holds an advisory lock, which the others
// do not wait for: so all processes together make one pass an interval, whoever of them does the next step, and a crash
// costs nothing. It goes by ctid, because any index for it would be paid by each insert, and it jumps over rows that are
// locked, because it never waits. The only clock that counts is the database's.
type sweeper struct {
	rt *Route

	horizon time.Time // nothing written after it is deleted
	asked   time.Time
}

func newSweeper(rt *Route) *sweeper { return &sweeper{rt: rt} }

func (s *sweeper) loop(ctx context.Context) {
	defer s.rt.in.left()
	rest := s.rt.in.cfg.SweepInterval / 10
	for {
		began := time.Now()
		more, err := s.step(ctx)
		pause := max(sweepIdle*time.Since(began), 10*time.Millisecond)
		if err != nil && ctx.Err() == nil {
			s.rt.in.cfg.Logger.WarnContext(ctx, "retention sweep is put off", "route", s.rt.cfg.Name, "error", err)
		}
		if err != nil || !more {
			pause = rest/2 + rand.N(max(rest, 1))
		}
		if !backoff.Wait(ctx, pause) {
			return
		}
	}
}

// step deletes what is old in the next few pages; more is false when the pass is over, is not due, or is in other hands.
func (s *sweeper) step(ctx context.Context) (more bool, err error) {
	if err := s.look(ctx); err != nil {
		return false, err
	}
	tx, err := s.rt.in.pool.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer rollBack(ctx, tx)
	page, last, ok, err := s.turn(ctx, tx)
	if err != nil || !ok {
		return false, err
	}
	if err := s.delete(ctx, tx, page); err != nil {
		return false, err
	}
	more = page+sweepPages < last
	if err := s.advance(ctx, tx, page+sweepPages, more); err != nil {
		return false, err
	}
	return more, tx.Commit(ctx)
}

// look asks what may still be redelivered.
func (s *sweeper) look(ctx context.Context) error {
	if !s.asked.IsZero() && time.Since(s.asked) < horizonAge {
		return nil
	}
	oldest, err := s.rt.cfg.Horizon(ctx)
	if err != nil {
		return fmt.Errorf("ask what may still be redelivered: %w", err)
	}
	if !oldest.IsZero() {
		oldest = oldest.Add(-horizonMargin)
	}
	s.horizon, s.asked = oldest, time.Now()
	return nil
}

const turnSQL = `select sweep_page, pg_relation_size('headrace.inbox') / current_setting('block_size')::bigint,
	sweep_page > 0 or swept_at is null or swept_at < now() - $2::bigint * interval '1 millisecond'
from headrace.consumers where id = $1::int`

// turn takes the lock and says where the pass stands; ok is false if another process has it or the pass is not due.
func (s *sweeper) turn(ctx context.Context, tx pgx.Tx) (page, last int64, ok bool, err error) {
	const limits = "set local lock_timeout = '1s'; set local statement_timeout = '30s'"
	if _, err := tx.Exec(ctx, limits); err != nil {
		return 0, 0, false, err
	}
	const lock = "select pg_try_advisory_xact_lock($1::int, $2::int)"
	if err := tx.QueryRow(ctx, lock, sweepLock, s.rt.consumer).Scan(&ok); err != nil || !ok {
		return 0, 0, false, err
	}
	interval := s.rt.in.cfg.SweepInterval.Milliseconds()
	err = tx.QueryRow(ctx, turnSQL, s.rt.consumer, interval).Scan(&page, &last, &ok)
	return page, last, ok, err
}

const sweepSQL = `delete from headrace.inbox where ctid = any(array(
	select ctid from headrace.inbox
	where ctid >= $2::text::tid and ctid < $3::text::tid and consumer_id = $1::int
		and created_at < now() - $4::bigint * interval '1 millisecond'
		and ($5::timestamptz is null or created_at < $5::timestamptz)
	for update skip locked))`

func (s *sweeper) delete(ctx context.Context, tx pgx.Tx, page int64) error {
	var horizon *time.Time
	if !s.horizon.IsZero() {
		horizon = &s.horizon
	}
	_, err := tx.Exec(ctx, sweepSQL, s.rt.consumer, tid(page), tid(page+sweepPages),
		s.rt.cfg.Retention.Milliseconds(), horizon)
	return err
}

func tid(page int64) string { return fmt.Sprintf("(%d,0)", page) }

// advance notes where the next step begins: at the first page, and not before the interval is over, when the pass is.
func (s *sweeper) advance(ctx context.Context, tx pgx.Tx, next int64, more bool) error {
	if !more {
		_, err := tx.Exec(ctx, "update headrace.consumers set sweep_page = 0, swept_at = now() where id = $1::int", s.rt.consumer)
		return err
	}
	_, err := tx.Exec(ctx, "update headrace.consumers set sweep_page = $2::bigint where id = $1::int", s.rt.consumer, next)
	return err
}

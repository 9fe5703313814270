package parking

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Claim takes up to limit lines whose time has come. It is nil when there are none. What it has taken when its answer is
// lost is a suspect once the lease is over.
func (s *Store) Claim(ctx context.Context, limit int) (*Lease, error) {
	return s.take(ctx, newClaim(false), limit)
}

// ClaimSuspect takes one line on which a process has died, nil if none is due. Its head must run when nothing else does.
func (s *Store) ClaimSuspect(ctx context.Context) (*Lease, error) {
	return s.take(ctx, newClaim(true), 1)
}

// claim is one try to take lines. Its token is known before the answer, so that what it has taken can be given back when
// that is lost.
type claim struct {
	token        int64
	suspect      bool
	began, ended time.Time
}

// newClaim draws a token that no other claim has, ever: 0 is nobody's.
func newClaim(suspect bool) *claim { return &claim{token: 1 + rand.Int64N(1<<63-1), suspect: suspect} }

func (s *Store) take(ctx context.Context, c *claim, limit int) (*Lease, error) {
	l := &Lease{store: s, token: c.token}
	sql := s.sql.claim
	if c.suspect {
		sql = s.sql.suspect
	}
	c.began = time.Now()
	err := s.transact(ctx, func(b *pgx.Batch) {
		b.Queue(sql, s.consumer, limit, millis(s.policy.Lease), l.token).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				line := &Line{started: !c.suspect}
				var late int64
				if err := rows.Scan(&line.Key, &line.Round, &line.Deaths, &late); err != nil {
					return err
				}
				line.Late = time.Duration(late) * time.Millisecond
				l.Lines = append(l.Lines, line)
			}
			return rows.Err()
		})
	})
	c.ended = time.Now()
	if err != nil {
		return nil, fmt.Errorf("claim parked keys: %w", err)
	}
	if len(l.Lines) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(l.Lines, func(a, b *Line) int { return int(b.Late - a.Late) })
	return l, nil
}

// clockSlack is what the database's clock and ours may differ by in how long a claim took.
const clockSlack = time.Second

// release gives back what c has taken, if anything: its answer is lost. Nobody has run it, so nothing is spent and no
// start counts.
func (s *Store) release(ctx context.Context, c *claim) error {
	first, last := s.policy.Lease-time.Since(c.began)-clockSlack, s.policy.Lease-time.Since(c.ended)+clockSlack
	err := s.transact(ctx, func(b *pgx.Batch) {
		b.Queue(s.sql.release, s.consumer, c.token, c.suspect, first.Milliseconds(), last.Milliseconds())
	})
	if err != nil {
		return fmt.Errorf("give back what a claim has taken whose answer is lost: %w", err)
	}
	return nil
}

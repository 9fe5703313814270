package parking_test

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/headrace/headrace/parking"
)

// drain claims and runs until stop, and crashes on the way: what it had claimed stays until the lease is over.
func (w *world) drain(stop <-chan struct{}) {
	rng := w.rand()
	for {
		wait := time.Millisecond
		if !w.drainOnce(rng) {
			wait = 3 * time.Millisecond
		}
		select {
		case <-stop:
			return
		case <-time.After(wait):
		}
	}
}

func (w *world) drainOnce(rng *rand.Rand) bool {
	claim := w.store.Claim
	if rng.IntN(3) == 0 {
		claim = func(ctx context.Context, _ int) (*parking.Lease, error) { return w.store.ClaimSuspect(ctx) }
	}
	lease, err := claim(w.ctx, 8)
	if err != nil || lease == nil || w.crash(rng) {
		return false
	}
	if lease.Load(w.ctx, 50, 1<<20) != nil {
		return false
	}
	if rng.IntN(3) == 0 {
		if _, err := lease.Renew(w.ctx); err != nil {
			w.seen.errors.Add(1)
		}
	}
	var ends []parking.End
	for _, line := range lease.Lines {
		end, crashed := w.line(rng, line)
		if crashed {
			return true
		}
		if ends = append(ends, end); rng.IntN(2) == 0 {
			w.finish(rng, lease, ends)
			ends = nil
		}
	}
	w.hiccup(rng)
	w.finish(rng, lease, ends)
	return true
}

func (w *world) finish(rng *rand.Rand, lease *parking.Lease, ends []parking.End) {
	w.hiccup(rng)
	fenced, err := lease.Finish(w.ctx, ends)
	if err != nil {
		w.seen.errors.Add(1)
	}
	w.seen.fenced.Add(int64(len(fenced)))
}

// line runs the records of one line, one after the other, up to the first that fails.
func (w *world) line(rng *rand.Rand, line *parking.Line) (end parking.End, crashed bool) {
	end = parking.End{Key: line.Key, Round: line.Round}
	for i, p := range line.Records {
		ok, dead, err := w.one(rng, p)
		if err != nil {
			w.seen.errors.Add(1)
			end.Then = parking.Return
			return end, false
		}
		last := i == 0 && line.Round >= w.store.Policy().Rounds
		switch {
		case dead:
			w.letter(p.Record)
		case !ok && last:
			if !w.bury(rng, p.Record) {
				return end, true
			}
		case !ok:
			end.Then, end.Failed = parking.Again, p.Place
			end.History = p.History.With(parking.Failure{Class: "transient"})
			return end, w.crash(rng)
		}
		end.Settled = append(end.Settled, p.Place)
		if w.crash(rng) {
			return end, true
		}
	}
	return end, false
}

func (w *world) one(rng *rand.Rand, p *parking.Parked) (ok, dead bool, err error) {
	tx, err := w.pool.Begin(w.ctx)
	if err != nil {
		return false, false, err
	}
	defer func() { _ = tx.Rollback(w.ctx) }()
	if _, err := tx.Exec(w.ctx, "set local lock_timeout = '100ms'"); err != nil {
		return false, false, err
	}
	id := p.Record.Identity
	tag, err := tx.Exec(w.ctx, `insert into headrace.inbox (consumer_id, message_id, value_hash, coordinates)
		values ($1, $2::text::uuid, 0, $3) on conflict do nothing`, w.store.Consumer(), id.Key.String(), id.Coordinates)
	if err != nil {
		return false, false, err
	}
	if tag.RowsAffected() == 0 {
		var state int
		err := tx.QueryRow(w.ctx, "select state::int from headrace.inbox where consumer_id = $1 and message_id = $2::text::uuid",
			w.store.Consumer(), id.Key.String()).Scan(&state)
		return true, state == 2, err
	}
	w.hiccup(rng)
	if w.fails(rng) {
		return false, false, nil
	}
	if err := w.effect(tx, p.Record); err != nil {
		return false, false, err
	}
	w.seen.drained.Add(1)
	return true, false, tx.Commit(w.ctx)
}

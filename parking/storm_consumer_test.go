package parking_test

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// consume is one claim of a partition. It goes on as a zombie for a while after it has lost it.
func (w *world) consume(p int, g int64) {
	rng := w.rand()
	pos := w.committed[p].Load()
	zombie := time.Duration(rng.IntN(300)) * time.Millisecond
	var lost time.Time
	for !w.closing.Load() && pos < int64(w.records) {
		if w.gen[p].Load() != g {
			if lost.IsZero() {
				lost = time.Now()
			}
			if time.Since(lost) > zombie {
				return
			}
		}
		end := min(pos+1+rng.Int64N(20), int64(w.records))
		for pending := w.logs[p][pos:end]; len(pending) > 0; {
			left, crashed := w.group(rng, pending)
			switch {
			case crashed && w.gen[p].CompareAndSwap(g, g+1): // another process gets the partition
				w.consumers.Go(func() { w.consume(p, g+1) })
				return
			case crashed:
				return
			}
			pending = left
		}
		pos = end
		if w.gen[p].Load() == g && (pos == int64(w.records) || rng.IntN(3) == 0) {
			w.committed[p].Store(pos)
		}
	}
}

// insertSQL is the inbox's claim statement with the look whether a key is parked.
const insertSQL = `with u as (
	select n, id, co, (select true from headrace.parked_keys l where l.consumer_id = $1::int and l.key_id = u0.k) is not null and not $5::boolean as blocked
	from unnest($2::bigint[], $3::text::uuid[], $4::bigint[]) with ordinality u0(k, id, co, n)
), i as (
	insert into headrace.inbox (consumer_id, message_id, value_hash, coordinates)
	select $1::int, id, 0, co from u where not blocked order by id on conflict do nothing returning message_id
)
select u.blocked, exists (select 1 from i where i.message_id = u.id),
	coalesce((select state from headrace.inbox x where x.consumer_id = $1::int and x.message_id = u.id), 0)::int
from u order by n`

const undoSQL = `delete from headrace.inbox where consumer_id = $1::int and message_id = any($2::text::uuid[])`

// group is one group transaction and what comes after it. What it gives back comes again, in order.
func (w *world) group(rng *rand.Rand, rs []*record.Record) (left []*record.Record, crashed bool) {
	blocked, failed, left, dead, err := w.transaction(rng, rs)
	if err != nil {
		w.seen.errors.Add(1)
		pause(time.Duration(rng.IntN(10)) * time.Millisecond)
		return rs, false
	}
	if w.crash(rng) {
		return nil, true
	}
	w.hiccup(rng)
	for _, r := range dead { // its process died before the letter
		w.letter(r)
	}
	for _, r := range failed {
		if rng.IntN(10) == 0 {
			if !w.bury(rng, r) {
				return nil, true
			}
			continue
		}
		w.park(parking.Entry{
			Record: r, Key: keyOf(r), Delay: time.Duration(1+rng.IntN(60)) * time.Millisecond, Failed: &parking.Failure{Class: "transient"},
		})
		w.seen.parked.Add(1)
	}
	if w.crash(rng) {
		return nil, true
	}
	w.hiccup(rng)
	if len(blocked) > 0 {
		entries := make([]parking.Entry, len(blocked))
		for i, r := range blocked {
			entries[i] = parking.Entry{Record: r, Key: keyOf(r)}
		}
		w.park(entries...)
		w.seen.followed.Add(int64(len(blocked)))
	}
	return left, w.crash(rng)
}

func keyOf(r *record.Record) int64 { return parking.KeyID(r, true) }

func (w *world) park(entries ...parking.Entry) {
	for w.store.Park(w.ctx, entries) != nil {
		w.seen.errors.Add(1)
	}
}

// transaction runs what is fresh and not blocked, up to the first failure of each key.
func (w *world) transaction(rng *rand.Rand, rs []*record.Record) (blocked, failed, left, dead []*record.Record, err error) {
	tx, err := w.pool.Begin(w.ctx)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	defer func() { _ = tx.Rollback(w.ctx) }()
	answers, err := w.insert(tx, rs)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	bad, undo := map[int64]bool{}, []*record.Record(nil)
	for i, r := range rs {
		switch a := answers[i]; {
		case a.blocked:
			blocked = append(blocked, r)
		case bad[keyOf(r)]:
			left = append(left, r)
			if a.fresh {
				undo = append(undo, r)
			}
		case !a.fresh && a.state == 2:
			dead = append(dead, r)
		case !a.fresh:
		case w.fails(rng):
			bad[keyOf(r)] = true
			failed, undo = append(failed, r), append(undo, r)
		default:
			w.hiccup(rng)
			if err := w.effect(tx, r); err != nil {
				return nil, nil, nil, nil, err
			}
		}
	}
	if len(undo) > 0 {
		if _, err := tx.Exec(w.ctx, undoSQL, w.store.Consumer(), idsOf(undo)); err != nil {
			return nil, nil, nil, nil, err
		}
	}
	if w.crash(rng) { // undone, as if it had not begun
		return nil, nil, rs, nil, nil
	}
	return blocked, failed, left, dead, tx.Commit(w.ctx)
}

type answer struct {
	blocked, fresh bool
	state          int
}

func (w *world) insert(tx pgx.Tx, rs []*record.Record) ([]answer, error) {
	keys, coords := make([]int64, len(rs)), make([]int64, len(rs))
	for i, r := range rs {
		keys[i], coords[i] = keyOf(r), r.Identity.Coordinates
	}
	if _, err := tx.Exec(w.ctx, "set local lock_timeout = '100ms'"); err != nil {
		return nil, err
	}
	rows, err := tx.Query(w.ctx, insertSQL, w.store.Consumer(), keys, idsOf(rs), coords, w.ignoreBlocked)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (a answer, err error) {
		err = row.Scan(&a.blocked, &a.fresh, &a.state)
		return a, err
	})
}

func (w *world) effect(tx pgx.Tx, r *record.Record) error {
	_, err := tx.Exec(w.ctx, "insert into effects (key_id, off, id) values ($1, $2, $3::text::uuid)", keyOf(r), r.Offset, r.Identity.Key.String())
	return err
}

const burySQL = `with i as (
	insert into headrace.inbox (consumer_id, message_id, state, value_hash, coordinates) values ($1::int, $2::text::uuid, 2, 0, $3)
	on conflict do nothing returning state::int
)
select state from i union all select state::int from headrace.inbox where consumer_id = $1::int and message_id = $2::text::uuid`

// bury writes the verdict before the letter; false for a crash between the two.
func (w *world) bury(rng *rand.Rand, r *record.Record) bool {
	for !w.noDeadRow {
		var state int
		err := w.pool.QueryRow(w.ctx, burySQL, w.store.Consumer(), r.Identity.Key.String(), r.Identity.Coordinates).Scan(&state)
		if err == nil && state == 0 {
			return true // somebody has effected it meanwhile
		}
		if err == nil {
			break
		}
		w.seen.errors.Add(1)
	}
	if w.crash(rng) {
		return false
	}
	w.letter(r)
	w.seen.dead.Add(1)
	return true
}

func (w *world) letter(r *record.Record) {
	for {
		if _, err := w.pool.Exec(w.ctx, "insert into letters values ($1::text::uuid)", r.Identity.Key.String()); err == nil {
			return
		}
		w.seen.errors.Add(1)
	}
}

func idsOf(rs []*record.Record) string {
	ids := make([]string, len(rs))
	for i, r := range rs {
		ids[i] = uuid.UUID(r.Identity.Key).String()
	}
	return "{" + strings.Join(ids, ",") + "}"
}

package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// row is an inbox row.
type row struct {
	state              int16
	coordinates, value int64
	original           *int64
	created            time.Time
}

// is says that the row is of the record that was first read there, or that stands there now.
func (r *row) is(coordinates int64) bool {
	return r.coordinates == coordinates || r.original != nil && *r.original == coordinates
}

// rowsSQL asks for all that the database knows of records, in one snapshot. The lateral look-ups keep it at one index
// look-up each.
const rowsSQL = `select i.state, i.coordinates, i.value_hash, i.original, i.created_at,
	j.state, j.coordinates, j.value_hash, j.original, j.created_at, q.hand is not null, coalesce(q.hand, false)
from unnest($2::text[]::uuid[], $3::text[]::uuid[], $5::int[], $6::bigint[], $7::bigint[], $8::bigint[]) with ordinality u(id, place, part, off, line, own, n)
left join lateral (select * from headrace.inbox x where x.consumer_id = $1::int and x.message_id = u.id and u.id <> u.place) i on true
left join lateral (select * from headrace.inbox x where x.consumer_id = $1::int and x.message_id = u.place) j on true
left join lateral (select coalesce(l.token <> 0, false) as hand from headrace.parked_records r
	left join headrace.parked_keys l on l.consumer_id = r.consumer_id and l.key_id = r.key_id
	where r.consumer_id = $1::int and r.key_id in (u.line, u.own) and r.topic_id = $4::text::uuid and r.part = u.part and r.off = u.off limit 1) q on true
order by u.n`

// byIndex keeps a plan from reading a whole table.
const byIndex = "select set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)"

func (a *auditor) rows(ctx context.Context, rt *route, topicID uuid.UUID, rs []*item) (found []*facts, err error) {
	var ids, places []string
	var parts []int32
	var offs, lines, owns []int64
	for _, it := range rs {
		ids, places = append(ids, it.keyFor(rt).String()), append(places, it.place.String())
		parts, offs = append(parts, it.partition), append(offs, it.offset)
		lines, owns = append(lines, it.lines[0]), append(owns, it.lines[1])
	}
	err = pgx.BeginTxFunc(ctx, a.cfg.Pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, byIndex); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, rowsSQL, rt.consumer, ids, places, topicID.String(), parts, offs, lines, owns)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, scanFacts)
		return err
	})
	if err == nil && len(found) != len(rs) {
		err = fmt.Errorf("%d answers", len(found))
	}
	if err != nil {
		return nil, fmt.Errorf("ask for %d records of route %s: %w", len(rs), rt.name, err)
	}
	return found, nil
}

// keyFor is by what a route knows the record: the offset store knows places alone.
func (it *item) keyFor(rt *route) uuid.UUID {
	if rt.byOffset {
		return it.place
	}
	return it.id
}

func scanFacts(r pgx.CollectableRow) (*facts, error) {
	f := &facts{}
	var mine, place nullRow
	err := r.Scan(&mine.state, &mine.coordinates, &mine.value, &mine.original, &mine.created,
		&place.state, &place.coordinates, &place.value, &place.original, &place.created, &f.parked, &f.inHand)
	f.mine, f.place = mine.row(), place.row()
	return f, err
}

// nullRow is one that may not be there.
type nullRow struct {
	state                        *int16
	coordinates, value, original *int64
	created                      *time.Time
}

func (n *nullRow) row() *row {
	if n.state == nil {
		return nil
	}
	return &row{state: *n.state, coordinates: *n.coordinates, value: *n.value, original: n.original, created: *n.created}
}

// byPlaceSQL reads the whole of a route's inbox once: there is no index by places, because each insert would pay for it.
const byPlaceSQL = `select coordinates, original, state, value_hash, created_at from headrace.inbox
where consumer_id = $1::int and (coordinates = any($2::bigint[]) or original = any($2::bigint[]))`

// byPlace looks for the rows of records of which nothing was found under their ids: an identity that is the route's own
// would let all of them look lost.
func (a *auditor) byPlace(ctx context.Context, rt *route) error {
	var hashes []int64
	of := map[int64]*item{}
	for _, it := range rt.wrong {
		if v := rt.whys[it]; v.outcomes == 0 && !rt.byOffset {
			hashes = append(hashes, it.coordinates)
			of[it.coordinates] = it
		}
	}
	if len(hashes) == 0 {
		return nil
	}
	rows, err := a.cfg.Pool.Query(ctx, byPlaceSQL, rt.consumer, hashes)
	if err != nil {
		return fmt.Errorf("look for %d records by their places: %w", len(hashes), err)
	}
	var r row
	_, err = pgx.ForEachRow(rows, []any{&r.coordinates, &r.original, &r.state, &r.value, &r.created}, func() error {
		it := of[r.coordinates]
		if it == nil && r.original != nil {
			it = of[*r.original]
		}
		if it == nil {
			return nil
		}
		own := r
		f := &facts{mine: &own}
		a.complete(rt, it, f)
		rt.whys[it] = rt.verdict(f)
		rt.ledger.ByPlace++
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for %d records by their places: %w", len(hashes), err)
	}
	return nil
}

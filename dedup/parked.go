package dedup

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/record"
)

// parkedSQL says which of these lines there are. The scalar subquery keeps its plan at one index look-up a record, also
// where it was made on an empty table.
const parkedSQL = `select u.n::int from unnest($2::text::bigint[]) with ordinality u(k, n)
where (select true from headrace.parked_keys l where l.consumer_id = $1::int and l.key_id = u.k) is not null`

// askParked asks, in the opening trip and before the rows are inserted, which records must wait behind parked ones. What is
// parked after that is no predecessor of theirs: those of their key were settled before this delivery came to them.
func (g *group) askParked(b *pgx.Batch) {
	if g.rt.cfg.ParkedKey == nil {
		return
	}
	var asked []*entry
	var keys []byte
	for _, e := range g.entries {
		e.parked = false
		if e.r.Parked == nil {
			asked = append(asked, e)
			keys = strconv.AppendInt(separated(keys), g.rt.cfg.ParkedKey(e.r), 10)
		}
	}
	if len(asked) > 0 {
		b.Queue(parkedSQL, g.rt.consumer, array(keys)).Query(func(rows pgx.Rows) error {
			return eachParked(rows, func(i int) { asked[i].parked = true })
		})
	}
}

func eachParked(rows pgx.Rows, parked func(i int)) error {
	var n int32
	_, err := pgx.ForEachRow(rows, []any{&n}, func() error {
		parked(int(n) - 1)
		return nil
	})
	return err
}

// lookParked makes Blocked of those that would run although their key is parked.
func (rt *Route) lookParked(ctx context.Context, conn *pgx.Conn, rs []*record.Record, answers []Answer) error {
	if rt.cfg.ParkedKey == nil {
		return nil
	}
	var asked []int
	var keys []byte
	for i, r := range rs {
		if r.Parked == nil && (answers[i] == Fresh || answers[i] == DeadReplay) {
			asked = append(asked, i)
			keys = strconv.AppendInt(separated(keys), rt.cfg.ParkedKey(r), 10)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	rows, err := conn.Query(ctx, parkedSQL, rt.consumer, array(keys))
	if err != nil {
		return err
	}
	return eachParked(rows, func(i int) { answers[asked[i]] = Blocked })
}

package dedup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// TestDuplicates_OfEveryKindComeToWhatTheirRowSays: two members get records that are known in every state, copies of each
// kind and new ones, all at once, whichever way the rows are written.
func TestDuplicates_OfEveryKindComeToWhatTheirRowSays(t *testing.T) {
	t.Parallel()
	for name, least := range map[string]int{"asked": 2, "as_a_rule": copyAtLeast, "inserted": neverCopied} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMix(t, least)
			for seed := range uint64(9) {
				m.round(seed)
			}
		})
	}
}

const (
	mixIDs    = 120
	mixBad    = 17 // one in so many fails for ever
	mixParked = 13
	mixSkips  = 11
	mixKeys   = 7
)

func mixOf(n, one int) bool { return n%one == one-1 }

// mix is a world of ids, two members, and what is known of each id before they begin.
type mix struct {
	t       *testing.T
	members []*workbench

	mu    sync.Mutex
	fails map[*record.Record]bool // in its next run
}

func newMix(t *testing.T, least int) *mix {
	m := &mix{t: t}
	dsn := pgtest.DSN(t, migrations.Up, schema)
	for range 2 {
		b := newBench(t, setup{dsn: dsn, cfg: Config{MaxBatch: 100, Writers: 2}, route: RouteConfig{
			ParkedKey: func(r *record.Record) int64 { return int64(idOf(r)) },
		}})
		b.rt.caution.least = least
		m.members = append(m.members, b)
	}
	return m
}

func idOf(r *record.Record) (n int) {
	_, _ = fmt.Sscanf(string(r.Headers[0].Value), "id-%d", &n)
	return n
}

func (m *mix) round(seed uint64) {
	b, rng := m.members[0], rand.New(rand.NewPCG(seed, 1))
	b.exec("truncate eff, headrace.inbox, headrace.parked_keys")
	m.fails = map[*record.Record]bool{}
	dead := m.history(rng)
	first, second := m.records(rng, dead), m.records(rng, dead)
	var done sync.WaitGroup
	for i, rs := range [...][]*record.Record{first, second} {
		done.Go(func() { m.deliver(m.members[i], rs, (int(seed)+i)%3) })
	}
	done.Wait()
	m.requireRows(append(first, second...), seed)
}

// history makes rows in all states, and says which ids are dead.
func (m *mix) history(rng *rand.Rand) (dead map[int]bool) {
	dead = map[int]bool{}
	b, rows, o := m.members[0], &pgx.Batch{}, newOwner()
	for n := range mixIDs {
		state := rng.IntN(10) // 0 effected, 1 skipped, 2 dead, 3 moved, 4 effected by a replay, else unknown
		id := rec(o, n, "").Identity
		coords, original := id.Coordinates, any(nil)
		if state == 4 {
			state, coords, original = 0, id.Coordinates+1, id.Coordinates
		}
		if state > 4 {
			if mixOf(n, mixParked) {
				rows.Queue("insert into headrace.parked_keys (consumer_id, key_id, due) values ($1, $2, now() + interval '1 hour')", b.rt.consumer, n)
			}
			continue
		}
		dead[n] = state == 2
		rows.Queue(`insert into headrace.inbox (consumer_id, message_id, state, value_hash, coordinates, original)
			values ($1, $2, $3, $4, $5, $6)`, b.rt.consumer, id.Key.String(), state, id.ValueHash, coords, original)
		if state == 0 {
			rows.Queue("insert into eff (n, note) values ($1, $2)", n, fmt.Sprintf("id-%d", n))
		}
	}
	require.NoError(m.t, b.pool.SendBatch(context.Background(), rows).Close())
	return dead
}

// records are some of all ids, in the order of their offsets: redeliveries, copies right behind and far away, other values
// under the same id, replays of the dead.
func (m *mix) records(rng *rand.Rand, dead map[int]bool) (rs []*record.Record) {
	o, at := newOwner(), 10_000*(1+rng.IntN(1000))
	for n := range mixIDs {
		id, value, key := fmt.Sprintf("id-%d", n), fmt.Sprintf("value-%d", n), ""
		if rng.IntN(2) == 0 {
			key = fmt.Sprint(n % mixKeys)
		}
		if rng.IntN(4) > 0 {
			rs = append(rs, rec(o, n, key))
		}
		for range rng.IntN(3) {
			at++
			rs = append(rs, recAs(o, at, key, id, value))
			if rng.IntN(2) == 0 { // its twin
				at++
				rs = append(rs, recAs(o, at, key, id, value))
			}
		}
		if rng.IntN(8) == 0 {
			at++
			rs = append(rs, recAs(o, at, key, id, "other"))
		}
		if dead[n] && rng.IntN(2) == 0 {
			at++
			rs = append(rs, replay(o, rec(newOwner(), n, key), int64(at)))
		}
	}
	for _, r := range rs {
		m.fails[r] = rng.IntN(12) == 0
	}
	slices.SortStableFunc(rs, func(a, b *record.Record) int { return int(a.Offset - b.Offset) })
	return rs
}

// deliver gives b the records in messages, two at a time, and again what is left until nothing more can become of it. Those
// of a key are never in two messages at once, as its order wants it.
func (m *mix) deliver(b *workbench, rs []*record.Record, kind int) {
	var lanes sync.WaitGroup
	for lane := range 2 {
		line := slices.DeleteFunc(slices.Clone(rs), func(r *record.Record) bool { return idOf(r)%mixKeys%2 != lane })
		lanes.Go(func() {
			for message := range slices.Chunk(line, 90) {
				m.untilOver(b, message, kind)
			}
		})
	}
	lanes.Wait()
}

func (m *mix) untilOver(b *workbench, left []*record.Record, kind int) {
	for until := time.Now().Add(time.Minute); len(left) > 0; {
		if time.Now().After(until) {
			m.t.Errorf("%d records are not settled: %v", len(left), left[0].Err)
			return
		}
		b.runWork(left, m.work(kind))
		left = slices.DeleteFunc(slices.Clone(left), m.over)
	}
}

func (m *mix) over(r *record.Record) bool {
	return r.Settled() || errors.Is(r.Err, ErrConflict) || errors.Is(r.Err, ErrDead) || errors.Is(r.Err, ErrParked) ||
		mixOf(idOf(r), mixBad) && errors.Is(r.Err, errBoom)
}

// comes says what r's run comes to.
func (m *mix) comes(r *record.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	failed := m.fails[r]
	m.fails[r] = false
	switch {
	case failed:
		return fault.Transient(errBoom)
	case mixOf(idOf(r), mixBad):
		return errBoom
	case mixOf(idOf(r), mixSkips):
		return fault.Skip("not for us")
	}
	return nil
}

func (m *mix) work(kind int) Work {
	const sql = "insert into eff (n, note) values ($1, $2)"
	switch kind {
	case 0:
		return Apply(func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			if _, err := tx.Exec(ctx, sql, r.Offset, string(r.Headers[0].Value)); err != nil {
				return err
			}
			return m.comes(r)
		})
	case 1:
		return Queue(func(_ context.Context, pending *pgx.Batch, r *record.Record) error {
			pending.Queue(sql, r.Offset, string(r.Headers[0].Value))
			return m.comes(r)
		})
	}
	return Batch(func(ctx context.Context, tx pgx.Tx, rs []*record.Record) error {
		bad := fault.Members{}
		for i, r := range rs {
			if err := m.comes(r); err != nil {
				bad[i] = err
				continue
			}
			if _, err := tx.Exec(ctx, sql, r.Offset, string(r.Headers[0].Value)); err != nil {
				return err
			}
		}
		if len(bad) > 0 {
			return bad
		}
		return nil
	})
}

// mixRow is a row of the inbox.
type mixRow struct {
	state            int16
	hash, at, before int64
}

// requireRows is the oracle: each id has one effect if its row says so and none otherwise, and each record came to what
// that row says of it.
func (m *mix) requireRows(all []*record.Record, seed uint64) {
	b := m.members[0]
	rows := map[string]mixRow{}
	found, err := b.pool.Query(context.Background(), "select message_id::text, state, value_hash, coordinates, coalesce(original, coordinates) from headrace.inbox")
	require.NoError(m.t, err)
	var key string
	var x mixRow
	_, err = pgx.ForEachRow(found, []any{&key, &x.state, &x.hash, &x.at, &x.before}, func() error { rows[key] = x; return nil })
	require.NoError(m.t, err)
	var effected []string
	for n := range mixIDs {
		if row, ok := rows[KeyOf(fmt.Sprintf("id-%d", n)).String()]; ok && row.state == 0 {
			effected = append(effected, fmt.Sprintf("id-%d", n))
		}
	}
	slices.Sort(effected)
	require.Equal(m.t, strings.Join(effected, " "),
		query[string](b, `select coalesce(string_agg(note, ' ' order by note collate "C"), '') from eff`), "seed %d: effects", seed)
	for _, r := range all {
		row, ok := rows[r.Identity.Key.String()]
		m.requireCameTo(r, row, ok, fmt.Sprintf("seed %d, id %d at %d: %v, %v, row %v", seed, idOf(r), r.Offset, r.Outcome(), r.Err, row))
	}
}

func (m *mix) requireCameTo(r *record.Record, row mixRow, ok bool, of string) {
	n := idOf(r)
	own := ok && (r.Identity.Coordinates == row.at || r.Identity.Coordinates == row.before)
	switch {
	case !ok:
		require.False(m.t, r.Settled(), of)
		require.True(m.t, mixOf(n, mixBad) || mixOf(n, mixParked), of)
	case own && errors.Is(r.Err, ErrDead): // perhaps before a replay took it over
		require.False(m.t, r.Settled(), of)
		require.True(m.t, row.state == 2 || row.at != row.before, of)
	case own:
		require.Equal(m.t, [...]record.Outcome{record.Effected, record.Skipped, record.Unsettled, record.Duplicate}[row.state], r.Outcome(), of)
	case r.Identity.ValueHash != row.hash:
		require.ErrorIs(m.t, r.Err, ErrConflict, of)
	case r.Replay && row.state == 2:
		require.True(m.t, !r.Settled() && mixOf(n, mixBad), of)
	default:
		require.Equal(m.t, record.Duplicate, r.Outcome(), of)
	}
}

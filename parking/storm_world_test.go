package parking_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// storm is consumers that become zombies, drainers whose leases run out, crashes between all steps and backends that are
// killed, all on one small set of keys. What they do with the inbox is what package dedup does, in short.
type storm struct {
	seed       uint64
	partitions int
	records    int // a partition
	keys       int // a partition
	fail, kill float64
	lease      time.Duration
	// The mutants that are not in the store.
	noDeadRow     bool
	ignoreBlocked bool
	breakStore    func(*parking.Store)
}

type world struct {
	storm

	pool      *pgxpool.Pool
	store     *parking.Store
	logs      [][]*record.Record
	committed []atomic.Int64
	gen       []atomic.Int64
	calm      atomic.Bool // nothing fails or crashes any more
	closing   atomic.Bool // consumers end
	ctx       context.Context
	seen      counters
	orphaned  int64 // records without a line, in the worst moment: the next one of their key would heal it
	consumers sync.WaitGroup
	drainers  sync.WaitGroup
	ids       atomic.Uint64 // of random sources
}

type counters struct {
	parked, followed, dead, crashes, fenced, drained, rebalances, killed, errors atomic.Int64
}

func (c *counters) String() string {
	return fmt.Sprintf("%d parked, %d followed, %d dead, %d drained, %d crashes, %d fenced, %d rebalances, %d backends killed, %d errors",
		c.parked.Load(), c.followed.Load(), c.dead.Load(), c.drained.Load(), c.crashes.Load(), c.fenced.Load(),
		c.rebalances.Load(), c.killed.Load(), c.errors.Load())
}

const stormTables = `
create table effects (seq bigint generated always as identity, key_id bigint, off bigint, id uuid);
create table letters (id uuid)`

func newWorld(t *testing.T, s storm) *world {
	t.Helper()
	w := &world{
		storm: s, ctx: context.WithoutCancel(t.Context()),
		committed: make([]atomic.Int64, s.partitions), gen: make([]atomic.Int64, s.partitions),
	}
	cfg, err := pgxpool.ParseConfig(pgtest.DSN(t, migrations.Up))
	require.NoError(t, err)
	cfg.MaxConns = 16
	cfg.ConnConfig.RuntimeParams["application_name"] = "storm"
	w.pool, err = pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(w.pool.Close)
	_, err = w.pool.Exec(t.Context(), stormTables)
	require.NoError(t, err)
	w.store = openStore(t, w.pool, "storm", parking.Policy{Rounds: 4})
	w.store.SetLease(s.lease)
	w.store.SetBackoff(10*time.Millisecond, 100*time.Millisecond)
	w.store.Dawdle()
	if s.breakStore != nil {
		s.breakStore(w.store)
	}
	w.fill()
	return w
}

// openStore makes the route's number, as its inbox would, and opens its parking.
func openStore(t testing.TB, pool *pgxpool.Pool, route string, p parking.Policy) *parking.Store {
	t.Helper()
	_, err := pool.Exec(t.Context(), "insert into headrace.consumers (consumer_group, route) values ('g', $1) on conflict do nothing", route)
	require.NoError(t, err)
	s, err := parking.Open(t.Context(), pool, "g", route, p)
	require.NoError(t, err)
	return s
}

func (w *world) fill() {
	topic, rng := uuid.New(), w.rand()
	for p := range w.partitions {
		log := make([]*record.Record, w.records)
		for off := range log {
			r := &record.Record{Topic: "t", TopicID: topic, Partition: int32(p), Offset: int64(off), Value: []byte("v")}
			r.Key = fmt.Append(nil, rng.IntN(w.keys))
			binary.BigEndian.PutUint32(r.Identity.Key[:], uint32(p))
			binary.BigEndian.PutUint64(r.Identity.Key[8:], uint64(off))
			r.Identity.ID = r.Identity.Key.String()
			r.Identity.Coordinates = int64(p)<<32 | int64(off)
			log[off] = r
		}
		w.logs = append(w.logs, log)
	}
}

func (w *world) rand() *rand.Rand { return rand.New(rand.NewPCG(w.seed, w.ids.Add(1))) }

func (w *world) crash(rng *rand.Rand) bool {
	if w.calm.Load() || rng.Float64() >= w.kill {
		return false
	}
	w.seen.crashes.Add(1)
	return true
}

func (w *world) fails(rng *rand.Rand) bool { return !w.calm.Load() && rng.Float64() < w.fail }

// hiccup is a pause of the process, seldom, and long enough for a lease to run out or a partition to be revoked.
func (w *world) hiccup(rng *rand.Rand) {
	if !w.calm.Load() && rng.IntN(60) == 0 {
		pause(time.Duration(rng.Int64N(int64(2 * w.lease))))
	}
}

func pause(d time.Duration) { <-time.After(d) }

// run lets the storm blow until everything is consumed or the time is over, then lets what is parked drain.
func (w *world) run(t *testing.T, most time.Duration) {
	t.Helper()
	for p := range w.partitions {
		w.consumers.Go(func() { w.consume(p, 0) })
	}
	drained := make(chan struct{})
	for range 3 {
		w.drainers.Go(func() { w.drain(drained) })
	}
	stopChaos := make(chan struct{})
	var chaos sync.WaitGroup
	chaos.Go(func() { w.chaos(stopChaos) })
	deadline := time.After(most)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for over := false; !over && !w.consumed(); {
		select {
		case <-deadline:
			over = true
		case <-tick.C:
			w.orphaned = max(w.orphaned, w.count(orphansSQL))
		}
	}
	close(stopChaos)
	chaos.Wait()
	w.calm.Store(true)
	w.closing.Store(true)
	w.consumers.Wait()
	require.Eventually(t, func() bool {
		return w.count("select count(*) from headrace.parked_keys") == 0
	}, time.Minute, 20*time.Millisecond, "everything parked is drained")
	close(drained)
	w.drainers.Wait()
}

func (w *world) consumed() bool {
	for p := range w.committed {
		if w.committed[p].Load() < int64(w.records) {
			return false
		}
	}
	return true
}

// chaos moves partitions and kills backends.
func (w *world) chaos(stop <-chan struct{}) {
	rng := w.rand()
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(50+rng.IntN(150)) * time.Millisecond):
		}
		p := rng.IntN(w.partitions)
		g := w.gen[p].Add(1)
		w.seen.rebalances.Add(1)
		w.consumers.Go(func() { w.consume(p, g) })
		if rng.IntN(3) == 0 {
			tag, err := w.pool.Exec(w.ctx, `select pg_terminate_backend(pid) from pg_stat_activity
				where application_name = 'storm' and datname = current_database() and pid <> pg_backend_pid() order by random() limit 1`)
			if err == nil {
				w.seen.killed.Add(tag.RowsAffected())
			}
		}
	}
}

// orphansSQL counts records that nobody would ever claim. There is no moment in which there are any.
const orphansSQL = `select count(*) from headrace.parked_records r
	where not exists (select from headrace.parked_keys l where (l.consumer_id, l.key_id) = (r.consumer_id, r.key_id))`

// count asks until it is answered: the backend that is killed may be this one.
func (w *world) count(sql string) (n int64) {
	for range 20 {
		if w.pool.QueryRow(w.ctx, sql).Scan(&n) == nil {
			return n
		}
	}
	return -1
}

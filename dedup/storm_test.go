package dedup

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// stormEnv names the environment variable with how long TestStorm lasts, "10m".
const stormEnv = "HEADRACE_STORM"

// TestStorm is the ledger under everything at once: three members get the same records in different orders, one executes,
// one queues, one writes for whole groups, taking turns; handlers fail in each way there is, deliveries end, duplicates come, backends are killed. At the end there is one effect and one
// row for each good record, and nothing of a bad one.
func TestStorm(t *testing.T) {
	t.Parallel()
	eachStore(t, testStorm)
}

func testStorm(t *testing.T) {
	t.Parallel()
	lasts := 6 * time.Second
	if text := os.Getenv(stormEnv); text != "" {
		var err error
		lasts, err = time.ParseDuration(text)
		require.NoError(t, err)
	} else if testing.Short() {
		lasts = time.Second
	}
	s := &storm{t: t, dsn: pgtest.DSN(t, migrations.Up, schema), until: time.Now().Add(lasts)}
	for range 3 {
		s.members = append(s.members, newBench(t, setup{
			dsn: s.dsn, cfg: Config{MaxBatch: 100, Writers: 2}, route: RouteConfig{AttemptTimeout: 300 * time.Millisecond},
		}))
	}
	s.members[1].rt.caution.least = 8 // it meets known rows in nearly each group, and asks first
	// Some of its records are suspect in one of them, and run alone there.
	suspects := s.members[0].rt.suspects
	s.members[0].suspect(0)
	suspects.until[partition{topicID, 0}] = stormSize / 5
	for round := 0; round == 0 || time.Now().Before(s.until); round++ {
		s.round(uint64(round))
	}
	t.Logf("%d records, %d calls, %d kills", s.records, s.calls.Load(), s.kills.Load())
}

type storm struct {
	t       *testing.T
	dsn     string
	until   time.Time
	members []*workbench
	records int
	calls   atomic.Int64
	kills   atomic.Int64
}

const (
	stormSize = 1000
	badEvery  = 37
)

func (s *storm) round(seed uint64) {
	b := s.members[0]
	b.exec("truncate eff, headrace.inbox, headrace.offsets")
	stop := make(chan struct{})
	var killer, members sync.WaitGroup
	killer.Go(func() { s.kill(stop) })
	for m, b := range s.members {
		members.Go(func() { s.member(b, rand.New(rand.NewPCG(seed, uint64(m))), m, Kind((uint64(m)+seed)%3)) })
	}
	members.Wait()
	close(stop)
	killer.Wait()
	good := 0
	for i := range stormSize {
		if i%badEvery != 0 {
			good++
		}
	}
	s.records += stormSize
	b.requireLedger(good)
	require.Zero(s.t, query[int](b, "select count(*) from eff where n % $1 = 0", badEvery), "effects of bad records")
}

// kill ends a random backend of the members every so often.
func (s *storm) kill(stop chan struct{}) {
	conn, err := pgx.Connect(context.Background(), s.dsn)
	require.NoError(s.t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	ticker := time.NewTicker(60 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
		_, err := conn.Exec(context.Background(), `select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and pid <> pg_backend_pid() and query !~ 'from eff|truncate' order by random() limit 1`)
		require.NoError(s.t, err)
		s.kills.Add(1)
	}
}

// member is one consumer: messages of up to 60 records, several at a time, in its own order, until all are settled or
// known to be bad.
func (s *storm) member(b *workbench, rnd *rand.Rand, m int, kind Kind) {
	o := newOwner()
	rs := make([]*record.Record, stormSize)
	for i := range rs {
		rs[i] = rec(o, i, "")
		if storeOf(s.t) == ByID {
			rs[i].Partition = int32(m % 2) // two members share coordinates, the third has a producer's duplicates
		}
		require.NoError(s.t, Identify(rs[i], Header("id")))
	}
	if m > 0 {
		rnd.Shuffle(len(rs), func(i, j int) { rs[i], rs[j] = rs[j], rs[i] })
	}
	line := make(chan []*record.Record, len(rs))
	for at := 0; at < len(rs); {
		n := min(1+rnd.IntN(60), len(rs)-at)
		line <- rs[at : at+n]
		at += n
	}
	close(line)
	var lanes sync.WaitGroup
	for lane := range 3 {
		rnd := rand.New(rand.NewPCG(rnd.Uint64(), uint64(lane)))
		lanes.Go(func() {
			for message := range line {
				s.deliver(b, rnd, message, kind)
			}
		})
	}
	lanes.Wait()
}

func (s *storm) deliver(b *workbench, rnd *rand.Rand, left []*record.Record, kind Kind) {
	var mu sync.Mutex // a writer's goroutine asks, and another may after it
	dice := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rnd.IntN(n)
	}
	work := s.work(kind, dice)
	for len(left) > 0 {
		ctx, end := context.WithCancelCause(context.Background())
		var timer *time.Timer
		if dice(40) == 0 {
			timer = time.AfterFunc(time.Duration(dice(20))*time.Millisecond, func() { end(record.ErrRevoked) })
		}
		finishes(s.t, func() { b.rt.Run(ctx, left, work) })
		if timer != nil {
			timer.Stop()
		}
		end(nil)
		var again []*record.Record
		for _, r := range left {
			if bad := r.Offset%badEvery == 0; !r.Settled() && (!bad || !charged(r)) {
				if errors.Is(r.Err, ErrConflict) || errors.Is(r.Err, ErrDead) || errors.Is(r.Err, ErrRouteStopped) {
					s.t.Errorf("offset %d: %v", r.Offset, r.Err)
				}
				again = append(again, r)
			}
		}
		left = again
	}
}

func (s *storm) work(kind Kind, dice func(int) int) Work {
	switch kind {
	case Queued:
		return Queue(func(_ context.Context, pending *pgx.Batch, r *record.Record) error {
			return s.queue(pending, r, dice(1500))
		})
	case Grouped:
		return Batch(func(ctx context.Context, tx pgx.Tx, rs []*record.Record) error {
			return s.batch(ctx, tx, rs, dice(100))
		})
	case Executed:
	}
	return Apply(func(ctx context.Context, tx pgx.Tx, r *record.Record) error { return s.apply(ctx, tx, r, dice(1500)) })
}

func (s *storm) queue(b *pgx.Batch, r *record.Record, dice int) error {
	s.calls.Add(1)
	if r.Offset%badEvery == 0 {
		b.Queue("select 1/$1::int", 0)
		return nil
	}
	b.Queue("insert into eff (n) values ($1)", r.Offset)
	switch dice {
	case 1:
		return fault.Transient(errBoom)
	case 3:
		panic("boom")
	case 4:
		b.Queue("select 1").Exec(func(pgconn.CommandTag) error { return fault.Transient(errBoom) })
	case 5:
		b.Queue("select generate_series(1, 100)").Query(func(pgx.Rows) error { return nil })
	case 6:
		b.Queue("select pg_sleep(10)")
	case 7:
		b.Queue("select pg_terminate_backend(pg_backend_pid())")
	case 10, 11, 12, 13, 14, 15, 16, 17:
		b.Queue("update acc set balance = balance + 1 where id = $1", 1+dice%3)
	}
	return nil
}

func (s *storm) batch(ctx context.Context, tx pgx.Tx, rs []*record.Record, dice int) error {
	s.calls.Add(int64(len(rs)))
	bad := fault.Members{}
	for i, r := range rs {
		if r.Offset%badEvery == 0 {
			bad[i] = errBoom
		}
	}
	if err := batchEffect(ctx, tx, rs); err != nil {
		return err
	}
	switch {
	case len(bad) > 0 && dice%2 == 0:
		return bad
	case len(bad) > 0:
		_, err := tx.Exec(ctx, "select 1/$1::int", 0)
		return err
	}
	switch dice {
	case 3:
		return fault.Members{len(rs) / 2: fault.Transient(errBoom)}
	case 4:
		return fault.Transient(errBoom)
	case 5:
		_, _ = tx.Query(ctx, "select generate_series(1, 100)") //nolint:sqlclosecheck // left open
	case 6:
		_, err := tx.Exec(ctx, "select pg_sleep(10)")
		return err
	case 7:
		_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
		return err
	case 10, 11, 12, 13, 14, 15:
		_, err := tx.Exec(ctx, "update acc set balance = balance + 1 where id = $1", 1+dice%3)
		return err
	}
	return nil
}

func (s *storm) apply(ctx context.Context, tx pgx.Tx, r *record.Record, dice int) error {
	s.calls.Add(1)
	if r.Offset%badEvery == 0 {
		_, err := tx.Exec(ctx, "select 1/$1::int", 0)
		return err
	}
	if dice == 1 {
		return fault.Transient(errBoom)
	}
	if err := effect(ctx, tx, r); err != nil {
		return err
	}
	switch dice {
	case 2:
		return fault.Transient(errBoom)
	case 3:
		panic("boom")
	case 4:
		_, _ = tx.Exec(ctx, "select 1/0")
	case 5:
		_, _ = tx.Query(ctx, "select generate_series(1, 100)") //nolint:sqlclosecheck // left open
	case 6:
		_, err := tx.Exec(ctx, "select pg_sleep(10)")
		return err
	case 7:
		_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
		return err
	case 8:
		_, err := tx.Begin(ctx)
		return err
	case 10, 11, 12, 13, 14, 15, 16, 17:
		_, err := tx.Exec(ctx, "update acc set balance = balance + 1 where id = $1", 1+dice%3)
		return err
	}
	return nil
}

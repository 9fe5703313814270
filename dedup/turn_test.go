package dedup

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// on makes record number n of a partition.
func on(part int32, n int) *record.Record {
	r := recAs(newOwner(), n, "", "", fmt.Sprintf("value-%d-%d", part, n))
	r.Partition = part
	if err := Identify(r); err != nil {
		panic(err)
	}
	return r
}

// process is a workbench whose process dies when one of its records runs: what is durable then is all that is left.
type process struct {
	*workbench
	dead context.Context
	kill context.CancelFunc
}

func newProcess(t *testing.T, dsn string) *process {
	t.Helper()
	return newProcessOf(t, dsn, RouteConfig{})
}

func newProcessOf(t *testing.T, dsn string, cfg RouteConfig) *process {
	t.Helper()
	p := &process{workbench: newBench(t, setup{dsn: dsn, cfg: Config{HardGrace: time.Millisecond}, route: cfg})}
	p.dead, p.kill = context.WithCancel(context.Background())
	t.Cleanup(p.kill)
	return p
}

// die leaves the marks as they are at this moment, whatever the process's orderly end does to them afterwards.
func (p *process) die() {
	p.exec("create table if not exists marks as select * from headrace.suspects")
	p.exec("delete from marks")
	p.exec("insert into marks select * from headrace.suspects")
	p.kill()
}

// bury is what stands in the database once the process is gone.
func (p *process) bury() {
	p.exec("delete from headrace.suspects")
	p.exec("insert into headrace.suspects select * from marks")
}

// lateDeaths makes marks so old that no living process can have left them.
func (b *workbench) lateDeaths() {
	b.exec("update headrace.suspects set killed_at = now() - interval '1 hour'")
}

// mark is what a suspect leaves that ends its process.
func (b *workbench) mark(r *record.Record) {
	b.t.Helper()
	marked, err := b.rt.suspects.mark(context.Background(), r)
	require.NoError(b.t, err)
	require.True(b.t, marked)
}

// marks are the partitions in which a mark stands that would be proof.
func (b *workbench) marks() []int32 {
	return query[[]int32](b, `select coalesce(array_agg(part order by part), '{}') from headrace.suspects
		where marked_by is not null and not beside`)
}

// suspect makes partitions suspect: two processes have died at their first record.
func (b *workbench) suspect(parts ...int32) {
	b.t.Helper()
	for _, part := range parts {
		for range suspectDeaths + 1 {
			require.NoError(b.t, b.rt.Claimed(context.Background(), topicID, part, 0))
			b.exec("update headrace.claim_starts set holder = gen_random_uuid()")
		}
		require.True(b.t, b.rt.suspects.has(on(part, 0)))
	}
}

// turnsAreAwaited says whether somebody waits for a turn: then nobody gets in before.
func (b *workbench) turnsAreAwaited() bool {
	if b.in.turns.TryAcquire(1) {
		b.in.turns.Release(1)
		return false
	}
	return true
}

func TestTurns(t *testing.T) {
	t.Parallel()
	eachStore(t, testTurns)
}

func testTurns(t *testing.T) {
	t.Parallel()

	// In each life of the process an innocent suspect runs for as long as the killer lets it.
	for name, c := range map[string]struct {
		claimed []int32 // the suspects; the killer is of partition 1
		route   string  // the killer's
	}{
		"NeighbourOfASuspectKillerIsNotConvicted":              {claimed: []int32{0, 1}},
		"NeighbourOfAKillerNobodySuspectsIsNotConvicted":       {claimed: []int32{0}},
		"NeighbourOfAKillerInAnotherRouteIsNotConvictedEither": {claimed: []int32{0}, route: "other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t, migrations.Up, schema)
			claim := func(p *process) {
				for _, part := range c.claimed {
					require.NoError(t, p.rt.Claimed(t.Context(), topicID, part, 0))
				}
			}
			for range 5 {
				p := newProcess(t, dsn)
				claim(p)
				p.together(c.route)
				p.bury()
				require.NotContains(t, p.marks(), int32(0), "it did not run when the process died")
			}
			p := newProcess(t, dsn)
			claim(p)
			p.lateDeaths()
			good, bad := on(0, 0), on(1, 0)
			p.run([]*record.Record{good}, effect)
			requireOutcomes(t, record.Effected, good)
			if len(c.claimed) > 1 {
				p.run([]*record.Record{bad}, effect)
				requireErr(t, ErrCrashLoop, bad)
			}
		})
	}

	t.Run("StuckHandlerHoldsUpNoSuspectForEverAndProvesNothing", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{cfg: Config{HardGrace: time.Millisecond}, route: RouteConfig{AttemptTimeout: 500 * time.Millisecond}})
		b.suspect(0)
		leave := make(chan struct{})
		b.run([]*record.Record{on(1, 0)}, func(context.Context, pgx.Tx, *record.Record) error {
			<-leave
			return nil
		})
		var during []int32
		look := func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			during = b.marks()
			return effect(ctx, tx, r)
		}
		rs := []*record.Record{on(0, 0), on(0, 1)}
		b.run(rs[:1], look)
		requireOutcomes(t, record.Effected, rs[0])
		require.Empty(t, during, "should the stuck handler end the process now, this one would stand there for it")
		close(leave)
		require.Eventually(t, func() bool { _, stuck := b.in.Stuck(); return !stuck }, 10*time.Second, time.Millisecond)
		b.run(rs[1:], look)
		requireOutcomes(t, record.Effected, rs[1])
		require.Equal(t, []int32{0}, during)
		require.Empty(t, b.marks())
	})

	// Out of memory is reached slowly: by then the handler may long have been given up.
	t.Run("SuspectThatIsStuckKeepsItsMarkUntilItReturns", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{cfg: Config{HardGrace: time.Millisecond}, route: RouteConfig{AttemptTimeout: 500 * time.Millisecond}})
		b.suspect(0, 1)
		leave := make(chan struct{})
		rs := []*record.Record{on(0, 0), on(0, 1), on(1, 0)}
		b.run(rs[:1], func(context.Context, pgx.Tx, *record.Record) error {
			<-leave
			return nil
		})
		require.Equal(t, []int32{0}, b.marks())
		b.run(rs, effect) // itself again, and others
		requireOutcomes(t, record.Effected, rs...)
		require.Equal(t, []int32{0}, b.marks())
		require.Zero(t, query[int](b, "select off from headrace.suspects where part = 0"))
		close(leave)
		require.Eventually(t, func() bool { return len(b.marks()) == 0 }, 10*time.Second, 5*time.Millisecond)
	})

	t.Run("EndOfADeliveryEndsItsWaitForATurn", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		b.suspect(0)
		running, leave := make(chan struct{}), make(chan struct{})
		var all sync.WaitGroup
		run := func(r *record.Record, own *owner, apply Apply) *record.Record {
			r.Bind(own, own.soft, "")
			all.Go(func() { b.rt.Run(context.Background(), []*record.Record{r}, apply) })
			return r
		}
		inHand := func(n int) func() bool {
			return func() bool {
				b.rt.mu.Lock()
				defer b.rt.mu.Unlock()
				return len(b.rt.flight) == n
			}
		}
		first := run(on(1, 0), newOwner(), func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			close(running)
			<-leave
			return effect(ctx, tx, r)
		})
		<-running
		own, others := newOwner(), newOwner()
		suspect := run(on(0, 0), own, effect)
		require.Eventually(t, b.turnsAreAwaited, 10*time.Second, time.Millisecond)
		behind := run(on(1, 1), others, effect) // had it come before the suspect, it would run beside the first
		require.Eventually(t, inHand(3), 10*time.Second, time.Millisecond)
		require.EqualValues(t, 1, b.in.pool.Stat().AcquiredConns(), "those who wait hold no connection")
		close(own.soft)
		close(others.soft)
		require.Eventually(t, inHand(1), 10*time.Second, time.Millisecond)
		close(leave)
		all.Wait()
		requireOutcomes(t, record.Effected, first)
		requireErr(t, record.ErrNotRun, suspect, behind)
	})

	// Its answer was lost, or the database was away when it was to be taken off.
	t.Run("MarkThatWasLeftOverGoesWithTheNextOne", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		b.suspect(0, 1)
		b.mark(on(0, 0))
		b.mark(on(1, 0))
		require.Equal(t, []int32{1}, b.marks())
	})
}

// together runs the innocent record and the killer at once, until the killer has ended the process.
func (p *process) together(route string) {
	p.t.Helper()
	rt := p.rt
	if route != "" {
		var err error
		rt, err = p.in.Route(p.t.Context(), named(RouteConfig{Name: route}))
		require.NoError(p.t, err)
	}
	const moment = 200 * time.Millisecond // for what would happen if they were let
	began, killing, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		p.rt.Run(p.dead, []*record.Record{on(0, 0)}, Apply(func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			close(began)
			select {
			case <-killing: // it runs beside the killer
				<-p.dead.Done()
				return p.dead.Err()
			case <-time.After(moment):
				return effect(ctx, tx, r)
			}
		}))
	}()
	rt.Run(p.dead, []*record.Record{on(1, 0)}, Apply(func(context.Context, pgx.Tx, *record.Record) error {
		select {
		case <-began:
		case <-time.After(moment):
		}
		close(killing)
		p.die()
		return context.Canceled
	}))
	await(p.t, over)
}

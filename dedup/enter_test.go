package dedup

import (
	"context"
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

func TestEnter(t *testing.T) {
	t.Parallel()
	eachStore(t, testEnter)
}

func testEnter(t *testing.T) {
	t.Parallel()

	// claimed is a process that gets two partitions, at their first records.
	claimed := func(t *testing.T, dsn string) *process {
		p := newProcess(t, dsn)
		for part := range int32(2) {
			require.NoError(t, p.rt.Claimed(t.Context(), topicID, part, 0))
		}
		return p
	}

	t.Run("KillerInACallIsConvictedAfterThreeDeathsOfItsOwnAndItsNeighbourNever", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		const moment = 200 * time.Millisecond // for what would happen if they were let
		for range 5 {
			p := claimed(t, dsn)
			began, killing, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
			go func() {
				defer close(over)
				leave, err := p.rt.Enter(p.dead, on(0, 0))
				if err != nil {
					return
				}
				defer leave()
				close(began)
				select {
				case <-killing:
					<-p.dead.Done()
				case <-time.After(moment):
				}
			}()
			leave, err := p.rt.Enter(t.Context(), on(1, 0))
			require.NoError(t, err)
			select {
			case <-began:
			case <-time.After(moment):
			}
			close(killing)
			p.die()
			leave()
			await(t, over)
			p.bury()
			require.NotContains(t, p.marks(), int32(0), "it was not in its call when the process died")
		}
		p := claimed(t, dsn)
		_, err := p.rt.Enter(t.Context(), on(1, 0))
		require.Equal(t, fault.ClassBusy, new(fault.Classifier).Classify(t.Context(), err).Class, "the process that marked it may live yet")
		require.Empty(t, p.reports)
		p.lateDeaths()
		_, err = p.rt.Enter(t.Context(), on(1, 0))
		require.ErrorIs(t, err, ErrCrashLoop)
		require.Equal(t, fault.ClassPermanent, new(fault.Classifier).Classify(t.Context(), err).Class)
		require.Equal(t, record.ReportCrashLoop, p.reports[0].Kind)
		leave, err := p.rt.Enter(t.Context(), on(0, 0))
		require.NoError(t, err)
		leave()
	})

	t.Run("DeathsInACallAndInAnApplyAreDeathsOfOneRecord", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		for life := range 5 {
			p := claimed(t, dsn)
			leave, err := p.rt.Enter(t.Context(), on(1, 0))
			require.NoError(t, err)
			if life%2 == 0 {
				p.die()
			}
			leave()
			if life%2 == 1 { // it has survived its call
				p.rt.Run(p.dead, []*record.Record{on(1, 0)}, Apply(func(context.Context, pgx.Tx, *record.Record) error {
					p.die()
					return context.Canceled
				}))
			}
			p.bury()
		}
		p := claimed(t, dsn)
		p.lateDeaths()
		_, err := p.rt.Enter(t.Context(), on(1, 0))
		require.ErrorIs(t, err, ErrCrashLoop)
		r := on(1, 0)
		p.run([]*record.Record{r}, effect)
		requireErr(t, ErrCrashLoop, r)
	})

	t.Run("MarkStandsForAsLongAsTheCall", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		b.suspect(0)
		leave, err := b.rt.Enter(t.Context(), on(0, 0))
		require.NoError(t, err)
		require.Equal(t, []int32{0}, b.marks())
		leave()
		leave()
		require.Empty(t, b.marks())
		all, err := b.rt.Enter(t.Context(), on(0, 0))
		require.NoError(t, err, "what was left twice was given back once")
		all()
	})

	t.Run("OrdinaryCallsShareAndASuspectWaitsForThem", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		b.suspect(0)
		var leaves []func()
		for n := range 64 {
			leave, err := b.rt.Enter(t.Context(), on(1, n))
			require.NoError(t, err)
			leaves = append(leaves, leave)
		}
		suspect := on(0, 0)
		o := newOwner()
		suspect.Bind(o, o.soft, "")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 2)
		enter := func(ctx context.Context) {
			_, err := b.rt.Enter(ctx, suspect)
			ended <- err
		}
		go enter(ctx)
		require.Eventually(t, b.turnsAreAwaited, 10*time.Second, time.Millisecond)
		cancel(record.ErrRevoked)
		require.ErrorIs(t, <-ended, record.ErrRevoked)
		go enter(t.Context())
		require.Eventually(t, b.turnsAreAwaited, 10*time.Second, time.Millisecond)
		close(o.soft)
		require.ErrorIs(t, <-ended, record.ErrNotRun)
		for _, leave := range leaves {
			leave()
		}
		leave, err := b.rt.Enter(t.Context(), on(0, 1))
		require.NoError(t, err)
		leave()
	})

	t.Run("CallThatNeverReturnsHoldsUpNoSuspectForEverAndProvesNothing", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{cfg: Config{HardGrace: time.Millisecond}, route: RouteConfig{CallTimeout: 50 * time.Millisecond}})
		b.suspect(0)
		never, err := b.rt.Enter(t.Context(), on(1, 3))
		require.NoError(t, err)
		rs := []*record.Record{on(0, 0), on(0, 1)}
		b.run(rs[:1], effect)
		requireOutcomes(t, record.Effected, rs[0])
		stuck, ok := b.in.Stuck()
		require.True(t, ok)
		require.EqualValues(t, 3, stuck.Offset)
		leave, err := b.rt.Enter(t.Context(), rs[1])
		require.NoError(t, err)
		require.Empty(t, b.marks(), "should the stuck call end the process now, this one would stand there for it")
		leave()
		never()
		_, ok = b.in.Stuck()
		require.False(t, ok)
		leave, err = b.rt.Enter(t.Context(), rs[1])
		require.NoError(t, err)
		require.Equal(t, []int32{0}, b.marks())
		leave()
	})

	t.Run("SuspectWhoseCallIsStuckKeepsItsMark", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{cfg: Config{HardGrace: time.Millisecond}, route: RouteConfig{CallTimeout: 50 * time.Millisecond}})
		b.suspect(0)
		leave, err := b.rt.Enter(t.Context(), on(0, 0))
		require.NoError(t, err)
		next := on(1, 0)
		b.run([]*record.Record{next}, effect) // once the call's turn is over
		requireOutcomes(t, record.Effected, next)
		require.Equal(t, []int32{0}, b.marks())
		leave()
		require.Empty(t, b.marks())
	})

	t.Run("DatabaseAwayIsUnavailableForASuspectAndNothingToOthers", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		proxy := pgtest.NewProxy(t, dsn)
		b := newBench(t, setup{dsn: proxy.DSN(), look: dsn})
		b.suspect(0)
		proxy.Down()
		_, err := b.rt.Enter(t.Context(), on(0, 0))
		require.Equal(t, fault.ClassUnavailable, new(fault.Classifier).Classify(t.Context(), err).Class)
		leave, err := b.rt.Enter(t.Context(), on(1, 0))
		require.NoError(t, err)
		leave()
		require.NoError(t, proxy.Accept())
		leave, err = b.rt.Enter(t.Context(), on(0, 0))
		require.NoError(t, err, "its turn was given back")
		leave()
	})

	t.Run("ManyAtOnceOfBothKindsComeToAnEnd", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		b.suspect(0)
		var mu sync.Mutex
		inside := map[int32]int{} // by partition: 0 is the suspects'
		company := 0
		move := func(part int32, by int) {
			mu.Lock()
			defer mu.Unlock()
			inside[part] += by
			if inside[0] > 1 || inside[0] == 1 && inside[1] > 0 {
				company++
			}
		}
		call := func(r *record.Record) {
			leave, err := b.rt.Enter(context.Background(), r)
			if err != nil {
				t.Errorf("%d/%d: %v", r.Partition, r.Offset, err)
				return
			}
			defer leave()
			move(r.Partition, 1)
			defer move(r.Partition, -1)
			<-time.After(time.Millisecond)
		}
		var all sync.WaitGroup
		var rs []*record.Record
		for n := range 30 {
			all.Go(func() { call(on(0, n)) })
			all.Go(func() { call(on(1, n)) })
			rs = append(rs, on(1, 100+n))
		}
		b.run(rs, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			move(r.Partition, 1)
			defer move(r.Partition, -1)
			return effect(ctx, tx, r)
		})
		finishes(t, all.Wait)
		require.Zero(t, company, "suspects that had company")
		requireOutcomes(t, record.Effected, rs...)
	})
}

package dedup

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// TestKillers is about several records that end their process, in one consumer group at once.
func TestKillers(t *testing.T) {
	t.Parallel()
	eachStore(t, testKillers)
}

func testKillers(t *testing.T) {
	t.Parallel()
	// live is a process that gets the partitions at their first records.
	live := func(t *testing.T, dsn string, parts ...int32) *process {
		p := newProcess(t, dsn)
		for _, part := range parts {
			require.NoError(t, p.rt.Claimed(t.Context(), topicID, part, 0))
		}
		p.lateDeaths()
		return p
	}
	// ends is a life that ends in r, and says whether it did: a convicted record does not run.
	ends := func(p *process, r *record.Record) bool {
		var ran atomic.Bool
		p.rt.Run(p.dead, []*record.Record{r}, Apply(func(context.Context, pgx.Tx, *record.Record) error {
			ran.Store(true)
			p.die()
			return context.Canceled
		}))
		if !ran.Load() {
			return false
		}
		<-p.dead.Done() // the handler may have been given up before
		p.bury()
		return true
	}

	// The worst turn in which they can come is one after the other, in one partition or in several.
	for name, killers := range map[string][]*record.Record{
		"OnePartition":      {on(0, 3), on(0, 1), on(0, 2)},
		"SeveralPartitions": {on(0, 1), on(1, 1), on(2, 1)},
	} {
		t.Run("KillersThatTakeTurnsCostThreeDeathsEachIn"+name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t, migrations.Up, schema)
			parts := []int32{0, 1, 2}
			deaths := 0
			for ; deaths < 2+3*len(killers); deaths++ {
				k := killers[deaths%len(killers)]
				require.True(t, ends(live(t, dsn, parts...), on(k.Partition, int(k.Offset))), "death %d", deaths)
			}
			p := live(t, dsn, parts...)
			for _, k := range killers {
				r := on(k.Partition, int(k.Offset))
				p.run([]*record.Record{r}, effect)
				requireErr(t, ErrCrashLoop, r)
			}
			innocent := on(0, 0)
			p.run([]*record.Record{innocent}, effect)
			requireOutcomes(t, record.Effected, innocent)
			require.Len(t, p.reports, len(killers))
		})
	}

	// Nothing of a conviction is durable but its count until the dead row is: flood guard, database and shutdown may be between.
	t.Run("ConvictionOutlivesTheProcessThatTheNextKillerEnds", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		for range 5 {
			require.True(t, ends(live(t, dsn, 0), on(0, 1)))
		}
		for range 3 {
			p := live(t, dsn, 0)
			first := on(0, 1)
			p.run([]*record.Record{first}, effect)
			requireErr(t, ErrCrashLoop, first)
			require.True(t, ends(p, on(0, 2)))
		}
		p := live(t, dsn, 0)
		rs := []*record.Record{on(0, 1), on(0, 2)}
		p.run(rs, effect)
		requireErr(t, ErrCrashLoop, rs...)
		require.NoError(t, p.rt.Claimed(t.Context(), topicID, 0, 3))
		require.False(t, p.rt.suspects.any.Load(), "they are behind us")
		require.Zero(t, query[int](p.workbench, "select count(*) from headrace.suspects"))
	})

	// The stuck one has a mark, too, and is not the one that ends the process. As long as it comes first, nothing would be
	// learned of the one that does.
	t.Run("KillerBehindAHandlerThatIsStuckEndsOneProcessForNothing", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		returns := make(chan struct{})
		var lives []*process
		quick := func() *process {
			p := newProcessOf(t, dsn, RouteConfig{AttemptTimeout: 500 * time.Millisecond})
			for part := range int32(2) {
				require.NoError(t, p.rt.Claimed(t.Context(), topicID, part, 0))
			}
			p.lateDeaths()
			lives = append(lives, p)
			return p
		}
		hang := func(p *process) {
			r := on(1, 0)
			p.run([]*record.Record{r}, func(context.Context, pgx.Tx, *record.Record) error { <-returns; return nil })
			requireErr(t, ErrStuck, r)
		}
		for range 2 {
			require.True(t, ends(quick(), on(0, 0)), "nobody is suspect yet")
		}
		p := quick()
		hang(p)
		require.True(t, ends(p, on(0, 0)), "it has never been in a process that died")

		p = quick()
		require.Zero(t, query[int](p.workbench, "select max(kills) from headrace.suspects"), "it might have been either")
		hang(p)
		killer, innocent := on(0, 0), on(0, 1)
		require.False(t, ends(p, killer))
		requireClass(t, fault.ClassBusy, killer)
		p.run([]*record.Record{innocent}, effect)
		requireOutcomes(t, record.Effected, innocent)
		hang(p) // it has its attempts
		for part := range int32(2) {
			require.NoError(t, p.rt.Released(t.Context(), topicID, part))
		}

		for range 3 {
			require.True(t, ends(quick(), on(0, 0)), "alone")
		}
		p = quick()
		rs := []*record.Record{on(0, 0), on(1, 0)}
		p.run(rs, effect)
		requireErr(t, ErrCrashLoop, rs[0])
		requireOutcomes(t, record.Effected, rs[1])
		close(returns)
		for _, p := range lives {
			require.Eventually(t, func() bool { _, stuck := p.in.Stuck(); return !stuck }, 10*time.Second, time.Millisecond)
		}
	})
}

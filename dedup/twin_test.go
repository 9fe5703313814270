package dedup

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// sentTwice are a record, its copy, and one behind them; all of one key.
func sentTwice(o *owner) (first, copied, behind *record.Record) {
	return rec(o, 1, "k"), recAs(o, 2, "k", "id-1", "value-1"), rec(o, 3, "k")
}

func TestTwin(t *testing.T) {
	t.Parallel()

	t.Run("IsOfItsFirstsGroupAndHoldsNobodyUp", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{cfg: Config{MaxBatchTime: time.Hour}, route: RouteConfig{Writers: 1}}), newOwner()
		first, copied, behind := sentTwice(o)
		b.run([]*record.Record{first, copied, behind}, effect)
		requireOutcomes(t, record.Effected, first, behind)
		requireOutcomes(t, record.Duplicate, copied)
		b.requireLedger(2)
		require.Equal(t, 1, b.counted(b.groups, "committed"))
		require.Equal(t, 2, b.counted(b.answers, "fresh"))
		require.Equal(t, 1, b.counted(b.answers, "duplicate"))
	})

	t.Run("OfASkippedOneIsADuplicate", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		first, copied, _ := sentTwice(o)
		b.run([]*record.Record{first, copied}, skip)
		requireOutcomes(t, record.Skipped, first)
		requireOutcomes(t, record.Duplicate, copied)
		b.requireLedger(0)
	})

	t.Run("OfAKnownOneIsADuplicate", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		b.run([]*record.Record{recAs(o, 0, "k", "id-1", "value-1")}, effect)
		first, copied, behind := sentTwice(o)
		b.run([]*record.Record{first, copied, behind}, effect)
		requireOutcomes(t, record.Duplicate, first, copied)
		requireOutcomes(t, record.Effected, behind)
		b.requireLedger(2)
	})

	// Else the letter that a crash prevented was never written: the first one is a duplicate of the dead copy.
	t.Run("ThatIsDeadWhileItsFirstIsNotIsAskedForItself", func(t *testing.T) {
		t.Parallel()
		for _, least := range []int{1, neverCopied} {
			b, o := newBench(t, setup{}), newOwner()
			b.rt.caution.least = least
			first, copied := rec(o, 1, ""), recAs(o, 2, "", "id-1", "value-1")
			require.Equal(t, Buried, b.bury(recAs(newOwner(), 2, "", "id-1", "value-1"), "permanent"))
			b.run([]*record.Record{first, copied}, effect)
			requireOutcomes(t, record.Duplicate, first)
			requireErr(t, ErrDead, copied)
			b.requireLedger(0)
		}
	})

	t.Run("WhoseEffectIsKnownIsEffected", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		b.run([]*record.Record{recAs(newOwner(), 2, "k", "id-1", "value-1")}, effect)
		first, copied, behind := sentTwice(o)
		b.run([]*record.Record{first, copied, behind}, effect)
		requireOutcomes(t, record.Duplicate, first)
		requireOutcomes(t, record.Effected, copied, behind)
		b.requireLedger(2)
	})

	t.Run("WithAnotherValueIsAConflict", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		first, _, behind := sentTwice(o)
		other := recAs(o, 2, "k", "id-1", "another value")
		b.run([]*record.Record{first, other, behind}, effect)
		requireOutcomes(t, record.Effected, first)
		requireErr(t, ErrConflict, other)
		requireErr(t, record.ErrNotRun, behind)
		b.requireLedger(1)
	})

	t.Run("OfAFailedOneStaysBehindIt", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		first, copied, behind := sentTwice(o)
		b.run([]*record.Record{first, copied, behind}, unless(1, func(context.Context, pgx.Tx, *record.Record) error {
			return fault.Transient(errBoom)
		}))
		require.ErrorIs(t, first.Err, errBoom)
		requireErr(t, record.ErrNotRun, copied, behind)
		b.requireLedger(0)
		b.run([]*record.Record{first, copied, behind}, effect)
		requireOutcomes(t, record.Effected, first, behind)
		requireOutcomes(t, record.Duplicate, copied)
		b.requireLedger(2)
	})

	t.Run("OfAFailedOneWithoutAKeyRunsInItsPlace", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		first, copied := rec(o, 1, ""), recAs(o, 2, "", "id-1", "value-1")
		b.run([]*record.Record{first, copied}, unless(1, func(context.Context, pgx.Tx, *record.Record) error { return errBoom }))
		require.ErrorIs(t, first.Err, errBoom)
		requireOutcomes(t, record.Effected, copied)
		b.requireLedger(1)
	})

	t.Run("WithAnotherKeyWaitsForItsOutcome", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		first, copied, behind := rec(o, 1, "k"), recAs(o, 2, "other", "id-1", "value-1"), rec(o, 3, "other")
		b.run([]*record.Record{first, copied, behind}, unless(1, func(context.Context, pgx.Tx, *record.Record) error { return errBoom }))
		require.ErrorIs(t, first.Err, errBoom)
		requireOutcomes(t, record.Effected, copied, behind)
		b.requireLedger(2)
	})

	t.Run("WhoseFirstWasCommittedWithoutAnAnswerIsADuplicate", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		proxy := pgtest.NewProxy(t, dsn)
		b := newBench(t, setup{dsn: proxy.DSN(), look: dsn, route: RouteConfig{Writers: 1}})
		b.runWork(recsFrom(newOwner(), 100, 2), Queue(queueEffect))
		first, copied, behind := sentTwice(newOwner())
		met := proxy.Once(pgtest.At(proxy.Requests()+1), pgtest.CutReply) // behind the gate with the rows
		b.runUntilCharged([]*record.Record{first, copied, behind}, Queue(queueEffect))
		await(t, met)
		requireOutcomes(t, record.Effected, first, behind)
		requireOutcomes(t, record.Duplicate, copied)
		b.requireLedger(4)
	})
}

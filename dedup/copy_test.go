package dedup

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// worthCopying is a number of records whose rows are copied.
const worthCopying = 2 * copyAtLeast

// neverCopied has a route insert the rows of each group.
const neverCopied = 1 << 30

// newCopyBench is a bench whose groups are as large as a message, however slow the machine is.
func newCopyBench(t *testing.T, s setup) *workbench {
	t.Helper()
	s.cfg.MaxBatchTime = time.Hour
	b := newBench(t, s)
	b.groupsOf(2 * worthCopying)
	return b
}

// waitsLong has the route's inserts wait long enough for another transaction to be seen waiting.
func (b *workbench) waitsLong() {
	b.rt.sql.shared = strings.Replace(b.rt.sql.shared, ms(insertLockTimeout), "30s", 1)
}

// opened runs rs in one group and says what its transaction was opened with, by the server's word.
func (b *workbench) opened(rs []*record.Record) (sql string) {
	b.t.Helper()
	b.runWork(rs, Batch(func(ctx context.Context, tx pgx.Tx, rs []*record.Record) error {
		// The last statement of that connection: this one has not been sent yet.
		err := b.pool.QueryRow(ctx, "select query from pg_stat_activity where pid = $1", tx.Conn().PgConn().PID()).Scan(&sql)
		if err != nil {
			return err
		}
		return batchEffect(ctx, tx, rs)
	}))
	return sql
}

func (b *workbench) requireCopied(rs []*record.Record) {
	b.t.Helper()
	require.Contains(b.t, b.opened(rs), copySQL)
}

func (b *workbench) requireNotCopied(rs []*record.Record) {
	b.t.Helper()
	require.NotContains(b.t, b.opened(rs), "copy")
}

func TestCopy(t *testing.T) {
	t.Parallel()

	t.Run("CopiedRowsAreThoseThatTheInsertWrites", func(t *testing.T) {
		t.Parallel()
		b, o := newCopyBench(t, setup{route: RouteConfig{Writers: 1}}), newOwner()
		b.requireCopied(recs(o, worthCopying))
		const rows = `select string_agg(format('%s %s %s %s %s %s %s %s', message_id, state, value_hash, coordinates,
			coalesce(original::text, '-'), coalesce(reason, '-'), coalesce(error, '-'), created_at between now() - interval '1 hour' and now()),
			E'\n' order by message_id) from headrace.inbox`
		copied := query[string](b, rows)
		b.exec("truncate eff, headrace.inbox")
		b.rt.caution.least = neverCopied
		b.requireNotCopied(recs(newOwner(), worthCopying))
		require.Equal(t, query[string](b, rows), copied)
		b.requireLedger(worthCopying)
	})

	t.Run("FewAreInsertedInTheOpeningTrip", func(t *testing.T) {
		t.Parallel()
		b := newCopyBench(t, setup{route: RouteConfig{Writers: 1}})
		b.requireNotCopied(recs(newOwner(), copyAtLeast-1))
		b.requireLedger(copyAtLeast - 1)
	})

	for name, least := range map[string]int{"KnownRecordsAreAnswered": copyAtLeast, "KnownRecordsAreAnsweredByTheInsert": neverCopied} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, o := newCopyBench(t, setup{route: RouteConfig{Writers: 1}}), newOwner()
			b.rt.caution.least = least
			b.run([]*record.Record{rec(o, 1, ""), rec(o, 2, "")}, effect)
			b.run([]*record.Record{rec(o, 3, "")}, skip)
			b.bury(rec(o, 4, ""), "permanent")
			o = newOwner() // all are delivered again
			rs := recsFrom(o, 5, worthCopying)
			own, ownSkipped, dead := rec(o, 1, ""), rec(o, 3, ""), rec(o, 4, "")
			twin, conflict := recAs(o, 1000, "", "id-2", "value-2"), recAs(o, 1001, "", "id-2", "other")
			b.run(append([]*record.Record{own, ownSkipped, dead, twin}, append(rs, conflict)...), effect)
			requireOutcomes(t, record.Effected, rs...)
			requireOutcomes(t, record.Effected, own)
			requireOutcomes(t, record.Skipped, ownSkipped)
			requireOutcomes(t, record.Duplicate, twin)
			requireErr(t, ErrDead, dead)
			require.ErrorContains(t, dead.Err, "permanent", "what it died of")
			requireErr(t, ErrConflict, conflict)
			b.requireLedger(2 + worthCopying)
			require.Equal(t, 2+worthCopying+1, b.counted(b.answers, "fresh"), "each is answered once")
		})
	}

	t.Run("AfterAKnownRecordTheNextGroupsAskFirst", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		proxy := pgtest.NewProxy(t, dsn)
		b, o, n := newCopyBench(t, setup{dsn: proxy.DSN(), look: dsn, route: RouteConfig{Writers: 1}}), newOwner(), 0
		trips := func(size int, more ...*record.Record) int {
			before := proxy.Requests()
			b.runWork(append(recsFrom(o, n, size), more...), Queue(queueEffect))
			n += size
			return proxy.Requests() - before
		}
		known := func() *record.Record { return recAs(o, 10_000+n, "", "id-1", "value-1") }
		trips(worthCopying)
		trips(worthCopying, known()) // the connection has prepared all there is
		b.rt.caution.groups.Store(0)
		const one, refused = 3, 3 // the gate, the rows, the effects with COMMIT; a gate, rows, ROLLBACK
		require.Equal(t, one, trips(worthCopying))
		require.Equal(t, one+refused, trips(worthCopying, known()))
		require.Equal(t, one, trips(worthCopying, known()))
		for range careful {
			trips(1)
		}
		require.Equal(t, one+refused, trips(worthCopying, known()))
		b.requireLedger(n)
	})

	t.Run("NothingIsWrittenForAGroupOfKnownRecords", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		proxy := pgtest.NewProxy(t, dsn)
		b := newCopyBench(t, setup{dsn: proxy.DSN(), look: dsn, route: RouteConfig{Writers: 1}})
		for range 2 { // the second time its connection prepares the question
			b.runWork(recs(newOwner(), worthCopying), Queue(queueEffect))
		}
		b.rt.caution.groups.Store(0)
		for _, trips := range []int{3 + 2, 2} { // refused; asked, and ROLLBACK
			before, rs := proxy.Requests(), recs(newOwner(), worthCopying)
			b.runWork(rs, Queue(queueEffect))
			requireOutcomes(t, record.Effected, rs...)
			require.Equal(t, trips, proxy.Requests()-before)
		}
		b.requireLedger(worthCopying)
	})

	t.Run("TwiceInOneMessageIsOneEffect", func(t *testing.T) {
		t.Parallel()
		b, o := newCopyBench(t, setup{route: RouteConfig{Writers: 1}}), newOwner()
		rs := recs(o, worthCopying)
		twin := recAs(o, 9999, "", "id-7", "value-7")
		b.run(append(rs, twin), effect)
		requireOutcomes(t, record.Effected, rs...)
		requireOutcomes(t, record.Duplicate, twin)
		b.requireLedger(worthCopying)
	})

	t.Run("AnotherTransactionCommitsFirst", func(t *testing.T) {
		t.Parallel()
		b := newCopyBench(t, setup{})
		b.waitsLong()
		rs := recs(newOwner(), worthCopying)
		tx := b.rival(rs[:5])
		b.when("wait_event_type = 'Lock' and query like 'copy%'", func() { require.NoError(t, tx.Commit(context.Background())) })
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(worthCopying)
	})

	t.Run("AnotherTransactionCommitsAfterTheQuestion", func(t *testing.T) {
		t.Parallel()
		b := newCopyBench(t, setup{route: RouteConfig{Writers: 1}})
		b.waitsLong()
		b.rt.caution.raise()
		rs := recs(newOwner(), worthCopying)
		tx := b.rival(rs[:5])
		b.when("wait_event_type = 'Lock' and query like 'copy%'", func() { require.NoError(t, tx.Commit(context.Background())) })
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(worthCopying)
		require.Equal(t, worthCopying-5, b.counted(b.attempts, ""), "the others' handlers ran")
	})

	t.Run("DeliveryThatEndsEndsTheWait", func(t *testing.T) {
		t.Parallel()
		b := newCopyBench(t, setup{})
		b.waitsLong()
		rs := recs(newOwner(), worthCopying)
		tx := b.rival(rs[:5])
		ctx, end := context.WithCancelCause(context.Background())
		b.when("wait_event_type = 'Lock' and query like 'copy%'", func() { end(record.ErrRevoked) })
		finishes(t, func() { b.rt.Run(ctx, rs, Apply(effect)) })
		requireErr(t, record.ErrRevoked, rs...)
		require.NoError(t, tx.Commit(context.Background()))
		b.requireLedger(5)
	})

	t.Run("ConnectionThatIsTerminatedWhileItCopies", func(t *testing.T) {
		t.Parallel()
		b := newCopyBench(t, setup{})
		b.waitsLong()
		rs := recs(newOwner(), worthCopying)
		tx := b.rival(rs[:1])
		const copying = "datname = current_database() and wait_event_type = 'Lock' and query like 'copy%'"
		b.when(copying, func() {
			b.exec("select pg_terminate_backend(pid) from pg_stat_activity where " + copying)
			require.NoError(t, tx.Rollback(context.Background()))
		})
		b.runUntilCharged(rs, Apply(effect))
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(worthCopying)
		require.Zero(t, b.counted(b.attempts, "transient"), "nobody pays")
	})

	t.Run("TableThatTakesNoRowsIsUnavailable", func(t *testing.T) {
		t.Parallel()
		b := newCopyBench(t, setup{})
		b.exec("alter table headrace.inbox add constraint nothing check (false) not valid")
		rs := recs(newOwner(), worthCopying)
		b.run(rs, effect)
		requireClass(t, fault.ClassUnavailable, rs...)
		b.requireLedger(0)
	})

	t.Run("EveryTripIsCutOnce", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		proxy := pgtest.NewProxy(t, dsn)
		b := newCopyBench(t, setup{dsn: proxy.DSN(), look: dsn, route: RouteConfig{Writers: 1}})
		b.runWork(recs(newOwner(), worthCopying), Queue(queueEffect)) // its connection has prepared all there is
		b.exec("truncate eff, headrace.inbox")
		before := proxy.Requests()
		b.runWork(recs(newOwner(), worthCopying), Queue(queueEffect))
		trips := proxy.Requests() - before
		require.Equal(t, 3, trips, "the gate, the rows, the effects with COMMIT")
		for i := range trips {
			for _, cut := range []pgtest.Action{pgtest.CutReply, pgtest.CutBefore} {
				b.exec("truncate eff, headrace.inbox")
				b.rt.caution.groups.Store(0)
				rs := recs(newOwner(), worthCopying)
				met := proxy.Once(pgtest.At(proxy.Requests()+i), cut)
				b.runUntilCharged(rs, Queue(queueEffect))
				await(t, met)
				requireOutcomes(t, record.Effected, rs...)
				b.requireLedger(worthCopying)
			}
		}
	})
}

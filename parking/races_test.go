package parking_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/parking"
)

// waits says that a statement of another connection waits for a lock.
func waits(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, pool.QueryRow(t.Context(), `select count(*) from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock'`).Scan(&n))
		return n > 0
	}, patience, time.Millisecond)
}

// strict is a database whose transactions see one moment only, unless they ask otherwise.
func strict(t *testing.T) (*parking.Store, *pgxpool.Pool) {
	t.Helper()
	pool := pgtest.New(t, migrations.Up)
	_, err := pool.Exec(t.Context(), `do $$ begin
		execute format('alter database %I set default_transaction_isolation = ''serializable''', current_database()); end $$`)
	require.NoError(t, err)
	pool.Reset()
	return openStore(t, pool, "r", soon), pool
}

func readCommitted(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(t.Context()) })
	return tx
}

func TestRaces(t *testing.T) {
	t.Parallel()

	// An append has locked the line -> a finish that settles its last record waits -> the append commits -> the finish sees
	// what was appended and leaves the line.
	t.Run("AFinishLeavesTheLineOfWhatJoinsIt", func(t *testing.T) {
		t.Parallel()
		s, pool := strict(t)
		sql := s.Statements()
		park(t, s, head(rec("a", 1)))
		l := claimed(t, s, 1)
		key := l.Lines[0].Key
		tx := readCommitted(t, pool)
		_, err := tx.Exec(t.Context(), sql["lines"], s.Consumer(), []int64{key}, []int64{0}, []int32{0})
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), sql["records"], s.Consumer(), []int64{key}, "{"+topicID.String()+"}", []int32{1}, []int64{2},
			"{"+rec("a", 2).Identity.Key.String()+"}", [][]byte{parking.Encode(rec("a", 2))}, [][]byte{nil})
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() {
			_, err := l.Finish(t.Context(), []parking.End{settled(l.Lines[0], 1)})
			done <- err
		}()
		waits(t, pool)
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, <-done)
		l = claimed(t, s, 1)
		require.Equal(t, []int64{2}, offsets(l.Lines[0]))
		require.EqualValues(t, 1, stats(t, s).Records)
	})

	// A finish has locked the line, and deletes it -> an append waits -> the finish commits -> the append makes the line
	// anew.
	t.Run("AnAppendMakesTheLineAnewThatAFinishHasDeleted", func(t *testing.T) {
		t.Parallel()
		s, pool := strict(t)
		sql := s.Statements()
		park(t, s, head(rec("a", 1)))
		l := claimed(t, s, 1)
		keys := []int64{l.Lines[0].Key}
		tx := readCommitted(t, pool)
		for _, step := range []struct {
			name string
			args []any
		}{
			{"lock", []any{s.Consumer(), keys, l.Token()}},
			{"settle", []any{s.Consumer(), keys, l.Token(), "{" + topicID.String() + "}", []int32{1}, []int64{1}}},
			{"drop", []any{s.Consumer(), keys, l.Token()}},
		} {
			_, err := tx.Exec(t.Context(), sql[step.name], step.args...)
			require.NoError(t, err, step.name)
		}
		done := make(chan error, 1)
		go func() { done <- s.Park(t.Context(), []parking.Entry{follower(rec("a", 2))}) }()
		waits(t, pool)
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, <-done)
		l = claimed(t, s, 1)
		require.Equal(t, []int64{2}, offsets(l.Lines[0]))
	})

	t.Run("WhoeverHasLostItsLeaseChangesNothing", func(t *testing.T) {
		t.Parallel()
		s, _ := newStore(t, soon)
		s.SetLease(time.Millisecond)
		park(t, s, head(rec("a", 1)), follower(rec("a", 2)))
		zombie := claimed(t, s, 1)
		key := zombie.Lines[0].Key
		s.SetLease(time.Hour)
		holder := suspect(t, s)
		for _, end := range []parking.End{settled(zombie.Lines[0], 1), failedAgain(zombie.Lines[0]), {Key: key, Then: parking.Return}, {Key: key, Then: parking.Held}} {
			fenced, err := zombie.Finish(t.Context(), []parking.End{end})
			require.NoError(t, err)
			require.Equal(t, []int64{key}, fenced)
		}
		require.EqualValues(t, 2, stats(t, s).Records)
		nothingDue(t, s)
		require.NoError(t, holder.Load(t.Context(), 10, 1<<20))
		require.Equal(t, []int64{1, 2}, offsets(holder.Lines[0]))
		finish(t, holder, settled(holder.Lines[0], 2))
		require.Zero(t, stats(t, s).Records)
	})

	t.Run("AFinishWhoseAnswerIsLostIsDoneAgain", func(t *testing.T) {
		t.Parallel()
		proxy := pgtest.NewProxy(t, pgtest.DSN(t, migrations.Up))
		s := openStore(t, pgtest.Pool(t, proxy.DSN()), "r", soon)
		lost := proxy.Once(pgtest.SQL("delete from headrace.parked_records"), pgtest.CutReply)
		park(t, s, head(rec("a", 1)))
		l := claimed(t, s, 1)
		end := settled(l.Lines[0], 1)
		_, err := l.Finish(t.Context(), []parking.End{end})
		require.Error(t, err)
		<-lost
		fenced, err := l.Finish(t.Context(), []parking.End{end})
		require.NoError(t, err)
		require.Equal(t, []int64{end.Key}, fenced, "it was done the first time")
		require.Equal(t, parking.Stats{}, stats(t, s))
	})

	t.Run("AParkWhoseAnswerIsLostIsDoneAgain", func(t *testing.T) {
		t.Parallel()
		proxy := pgtest.NewProxy(t, pgtest.DSN(t, migrations.Up))
		s := openStore(t, pgtest.Pool(t, proxy.DSN()), "r", soon)
		lost := proxy.Once(pgtest.Commit, pgtest.CutReply)
		require.Error(t, s.Park(t.Context(), []parking.Entry{head(rec("a", 1))}))
		<-lost
		park(t, s, head(rec("a", 1)))
		require.EqualValues(t, 1, stats(t, s).Records)
	})
}

func TestDeaths(t *testing.T) {
	t.Parallel()

	t.Run("ARecordThatKillsItsProcessIsConvictedAndItsCompanionsAreNot", func(t *testing.T) {
		t.Parallel()
		s, _ := newStore(t, soon)
		const companions = 5
		park(t, s, head(rec("killer", 1)))
		for i := range int64(companions) {
			park(t, s, head(rec("good-"+string(rune('a'+i)), 2+i)))
		}
		s.SetLease(time.Millisecond)
		claimed(t, s, 1+companions) // and the process dies
		good := map[int64]bool{}
		for convicted := false; !convicted || len(good) < companions; {
			l := suspect(t, s)
			line := l.Lines[0]
			require.Len(t, l.Lines, 1, "a suspect runs alone")
			require.Len(t, line.Records, 1)
			switch killer := line.Key == keyOf(rec("killer", 1)); {
			case killer && line.CrashLoop():
				convicted = true
				require.Equal(t, 4, line.Deaths)
				finishLate(t, l, settled(line, 1))
			case killer:
				continue // it dies
			default:
				require.False(t, line.CrashLoop())
				require.Equal(t, 1, line.Deaths)
				good[line.Key] = finishLate(t, l, settled(line, 1))
			}
		}
		require.Zero(t, stats(t, s).Records)
	})

	t.Run("AnOutageThatOutlastsTheLeaseIsNoDeath", func(t *testing.T) {
		t.Parallel()
		s, _ := newStore(t, soon)
		park(t, s, head(rec("a", 1)), head(rec("b", 2)))
		s.SetLease(time.Millisecond)
		slow := claimed(t, s, 2)
		s.SetLease(time.Hour)
		first := suspect(t, s)
		require.Equal(t, 1, first.Lines[0].Deaths)
		lost, err := slow.Renew(t.Context())
		require.NoError(t, err)
		require.Len(t, lost, 1)
		require.Equal(t, first.Lines[0].Key, lost[0].Key)
		require.Len(t, slow.Lines, 1, "the other one is still its own")
		require.NoError(t, first.GiveBack(t.Context()))
		require.NoError(t, slow.GiveBack(t.Context()))
		l := claimed(t, s, 2)
		require.Zero(t, l.Lines[0].Deaths)
		require.Zero(t, l.Lines[1].Deaths)
	})

	t.Run("ARenewedLeaseIsKept", func(t *testing.T) {
		t.Parallel()
		s, _ := newStore(t, soon)
		park(t, s, head(rec("a", 1)))
		s.SetLease(time.Millisecond)
		l := claimed(t, s, 1)
		s.SetLease(time.Hour)
		lost, err := l.Renew(t.Context())
		require.NoError(t, err)
		require.Empty(t, lost)
		nothingDue(t, s)
	})
}

// finishLate is true although the lease may be over: until another claims the line, it is still the holder's.
func finishLate(t *testing.T, l *parking.Lease, end parking.End) bool {
	t.Helper()
	fenced, err := l.Finish(t.Context(), []parking.End{end})
	require.NoError(t, err)
	require.Empty(t, fenced)
	return true
}

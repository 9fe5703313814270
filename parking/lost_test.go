package parking_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// behind is a store of route r whose every statement goes through a proxy.
func behind(t *testing.T, p parking.Policy) (*parking.Store, *pgtest.Proxy) {
	t.Helper()
	proxy := pgtest.NewProxy(t, pgtest.DSN(t, migrations.Up))
	return openStore(t, pgtest.Pool(t, proxy.DSN()), "r", p), proxy
}

// A claim whose answer was lost, and three claims of a suspect, convicted a record that had never run as crash_loop.
func TestDeaths_LostAnswersConvictNobody(t *testing.T) {
	t.Parallel()
	s, proxy := behind(t, soon)
	park(t, s, head(rec("a", 1)))
	s.SetLease(time.Millisecond)
	lose := func(statement string, call func() error) {
		t.Helper()
		met := proxy.Once(pgtest.SQL(statement), pgtest.CutReply)
		require.Eventually(t, func() bool { return call() != nil }, patience, time.Millisecond)
		<-met
	}
	lose("starts = 0", func() error { _, err := s.Claim(t.Context(), 1); return err })
	for range 5 {
		lose("starts > 0", func() error { _, err := s.ClaimSuspect(t.Context()); return err })
	}
	line := suspect(t, s).Lines[0]
	require.Equal(t, 1, line.Deaths)
	require.False(t, line.CrashLoop())
}

// Nor does a suspect's load whose answer is lost: it has not run.
func TestDeaths_ASuspectThatWasNotLoadedHasNotRun(t *testing.T) {
	t.Parallel()
	s, proxy := behind(t, soon)
	park(t, s, head(rec("a", 1)))
	s.SetLease(time.Millisecond)
	claimed(t, s, 1)
	s.SetLease(time.Hour)
	for range 5 {
		var l *parking.Lease
		require.Eventually(t, func() bool {
			var err error
			l, err = s.ClaimSuspect(t.Context())
			require.NoError(t, err)
			return l != nil
		}, patience, time.Millisecond)
		lost := proxy.Once(pgtest.SQL("octet_length"), pgtest.CutReply)
		require.Error(t, l.Load(t.Context(), 1, 1<<20))
		<-lost
		require.NoError(t, l.GiveBack(t.Context()))
	}
	require.Equal(t, 1, suspect(t, s).Lines[0].Deaths)
}

// A suspect that another process has claimed meanwhile is not loaded: it would run beside it, and nobody would know.
func TestDeaths_ASuspectThatIsAnothersByNowIsNotLoaded(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t, soon)
	park(t, s, head(rec("a", 1)))
	s.SetLease(time.Millisecond)
	claimed(t, s, 1)
	slow, err := s.ClaimSuspect(t.Context())
	for ; slow == nil; slow, err = s.ClaimSuspect(t.Context()) {
		require.NoError(t, err)
	}
	s.SetLease(time.Hour)
	holder := suspect(t, s)
	require.NoError(t, slow.Load(t.Context(), 1, 1<<20))
	require.Empty(t, slow.Lines[0].Records)
	fenced, err := slow.Finish(t.Context(), []parking.End{{Key: slow.Lines[0].Key, Then: parking.Return}})
	require.NoError(t, err)
	require.Len(t, fenced, 1)
	require.NoError(t, holder.GiveBack(t.Context()))
	require.Equal(t, 1, suspect(t, s).Lines[0].Deaths)
}

// The keys of a claim whose answer was lost waited until the lease ran out, and then each ran alone, as if a process had
// died with it.
func TestSource_WhatALostAnswerHasTakenComesBackAtOnce(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{"OfAClaim": "starts = 0", "OfALoad": "octet_length"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := soon
			p.Lease = time.Hour
			s, proxy := behind(t, p)
			park(t, s, head(rec("a", 1)), follower(rec("a", 2)), head(rec("b", 3)))
			lost := proxy.Once(pgtest.SQL(statement), pgtest.CutReply)
			f := feedOf(t, s, nil, quick)
			<-lost
			_, rs := f.next()
			require.Len(t, rs, 3, "none of them is a suspect")
			for _, r := range rs {
				require.True(t, r.Settle(record.Effected))
			}
			f.parked(0)
		})
	}

	t.Run("OfASuspectsClaim", func(t *testing.T) {
		t.Parallel()
		p := soon
		p.Lease = time.Hour
		s, proxy := behind(t, p)
		park(t, s, head(rec("a", 1)))
		s.SetLease(time.Millisecond)
		claimed(t, s, 1) // and the process dies
		s.SetLease(time.Hour)
		lost := proxy.Once(pgtest.SQL("starts > 0"), pgtest.CutReply)
		f := feedOf(t, s, nil, quick)
		<-lost
		_, rs := f.next()
		require.False(t, trial(rs[0]).CrashLoop)
		require.True(t, rs[0].Settle(record.Effected))
		f.parked(0)
	})
}

// An outage that outlasts the lease of what had ended left the keys behind as if their process had died; the fourth such
// outage convicted a healthy record.
func TestSource_AnOutageThatOutlastsALeaseIsNoDeath(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t, migrations.Up)
	proxy := pgtest.NewProxy(t, dsn)
	other := openStore(t, pgtest.Pool(t, dsn), "r", soon)
	s := openStore(t, pgtest.Pool(t, proxy.DSN()), "r", soon)
	s.SetLease(300 * time.Millisecond)
	park(t, s, head(rec("a", 1)))
	f := feedOf(t, s, nil, quick)
	for range 5 {
		_, rs := f.next()
		require.False(t, trial(rs[0]).CrashLoop)
		stop := proxy.Always(pgtest.Any, pgtest.CutBefore)
		_, err := parking.Repark(t.Context(), rs[0], 0, parking.Failure{Class: "transient"})
		require.Error(t, err)
		require.Eventually(t, func() bool { return stats(t, other).Lag > 0 && f.src.Owes() }, patience, time.Millisecond)
		stop()
	}
	_, rs := f.next()
	require.False(t, trial(rs[0]).CrashLoop)
	require.True(t, rs[0].Settle(record.Effected))
	f.parked(0)
}

// The end that a work could not write is paid by another goroutine than the one that goes on with the work's lease: both
// took the lease's lines without a lock, and the process could die of what they made of them. The race detector sees it
// where both have their answers at hand, and neither has done anything else since that it could take for an order.
func TestSource_ADebtIsPaidWhileTheLeaseGoesOn(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t, migrations.Up)
	proxy, direct := pgtest.NewProxy(t, dsn), pgtest.Pool(t, dsn)
	s := openStore(t, pgtest.Pool(t, proxy.DSN()), "r", soon)
	s.SetLease(3 * time.Second)
	park(t, s, head(rec("a", 1)), head(rec("b", 2)))
	f := feedOf(t, s, nil, quick)
	_, rs := f.next()
	require.Len(t, rs, 2)
	stop := proxy.Always(pgtest.Any, pgtest.CutBefore)
	renewed, paid := make(chan struct{}), make(chan struct{})
	renewing := proxy.Once(pgtest.SQL("from mine where"), pgtest.HoldReply(renewed))
	paying := proxy.Once(pgtest.SQL("delete from headrace.parked_keys"), pgtest.HoldReply(paid))
	_, err := parking.Repark(t.Context(), rs[0], 0, parking.Failure{Class: "transient"})
	require.Error(t, err)
	stop()
	<-renewing
	<-paying
	both := func() (done bool) {
		err := direct.QueryRow(t.Context(), `select count(*) filter (where token = 0) = 1 and count(*) filter (where token <> 0 and due > now()) = 1
			from headrace.parked_keys`).Scan(&done)
		require.NoError(t, err)
		return done
	}
	require.Eventually(t, both, patience, time.Millisecond)
	close(renewed)
	for range 20 { // the renewal takes its answer meanwhile
		both()
	}
	close(paid)

	rs[1].Settle(record.Effected)
	require.Eventually(t, func() bool {
		select {
		case msg := <-f.out: // what waited for its next round; on a busy machine also what the lease has lost meanwhile
			rs, err := record.Records(msg)
			require.NoError(t, err)
			for _, r := range rs {
				require.False(t, trial(r).CrashLoop)
				r.Settle(record.Effected)
			}
		default:
		}
		return stats(t, s).Records == 0
	}, 3*patience, time.Millisecond)
}

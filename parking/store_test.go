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

func TestStore(t *testing.T) {
	t.Parallel()

	t.Run("ARecordComesBackWholeWhenItIsDue", func(t *testing.T) {
		t.Parallel()
		s, _ := newStore(t, soon)
		r := whole()
		e := head(r)
		e.Failed.At = time.UnixMilli(1_790_000_000_000).UTC()
		park(t, s, e)
		l := claimed(t, s, 1)
		line := l.Lines[0]
		require.Equal(t, e.Key, line.Key)
		require.Equal(t, 1, line.Round)
		require.Zero(t, line.Deaths)
		require.Len(t, line.Records, 1)
		p := line.Records[0]
		require.NoError(t, p.Err)
		require.Equal(t, r, p.Record)
		require.Equal(t, parking.Place{Key: e.Key, TopicID: r.TopicID, Partition: r.Partition, Offset: r.Offset}, p.Place)
		require.Equal(t, parking.History{*e.Failed}, p.History)
		require.WithinDuration(t, time.Now(), p.ParkedAt, time.Minute)
		finish(t, l, settled(line, 1))
		require.Equal(t, parking.Stats{}, stats(t, s))
		nothingDue(t, s)
	})

	t.Run("WhatIsNotDueStays", func(t *testing.T) {
		t.Parallel()
		s, _ := newStore(t, parking.Policy{})
		park(t, s, head(rec("a", 1)))
		nothingDue(t, s)
		require.EqualValues(t, 1, stats(t, s).Records)
	})

	t.Run("LaterRecordsOfTheKeyQueueBehindItAndOtherKeysFlow", func(t *testing.T) {
		t.Parallel()
		s, _ := newStore(t, soon)
		park(t, s, head(rec("a", 1)))
		park(t, s, follower(rec("a", 7)))
		park(t, s, follower(rec("a", 3)), follower(rec("a", 4)))
		blocked, err := s.Blocked(t.Context(), []int64{keyOf(rec("b", 2)), keyOf(rec("a", 9)), keyOf(rec("c", 2))})
		require.NoError(t, err)
		require.Equal(t, []bool{false, true, false}, blocked)
		l := claimed(t, s, 1)
		require.Equal(t, []int64{1, 3, 4, 7}, offsets(l.Lines[0]))
		finish(t, l, settled(l.Lines[0], 2))
		l = claimed(t, s, 1)
		require.Equal(t, []int64{4, 7}, offsets(l.Lines[0]))
		require.Zero(t, l.Lines[0].Round, "a new head was never tried")
		finish(t, l, settled(l.Lines[0], 2))
		blocked, err = s.Blocked(t.Context(), []int64{keyOf(rec("a", 9))})
		require.NoError(t, err)
		require.Equal(t, []bool{false}, blocked)
	})

	t.Run("ARecordThatFailsAgainWaitsForItsNextRound", func(t *testing.T) {
		t.Parallel()
		s, pool := newStore(t, parking.Policy{Base: time.Millisecond, Cap: time.Hour})
		park(t, s, head(rec("a", 1)), follower(rec("a", 2)))
		for round := 1; round <= 3; round++ {
			l := claimed(t, s, 1)
			require.Equal(t, round, l.Lines[0].Round)
			require.Len(t, l.Lines[0].Records[0].History, round)
			finish(t, l, failedAgain(l.Lines[0]))
		}
		l := claimed(t, s, 1)
		end := failedAgain(l.Lines[0])
		end.Delay = time.Hour // what the handler asked for
		finish(t, l, end)
		nothingDue(t, s)
		var due float64
		require.NoError(t, pool.QueryRow(t.Context(), "select extract(epoch from due - now())::float8 from headrace.parked_keys").Scan(&due))
		require.InDelta(t, time.Hour.Seconds(), due, 60)
		blocked, err := s.Blocked(t.Context(), []int64{keyOf(rec("a", 9))})
		require.NoError(t, err)
		require.Equal(t, []bool{true}, blocked)
	})

	t.Run("TheSecondOfALineIsInItsFirstRoundWhenItFails", func(t *testing.T) {
		t.Parallel()
		s, _ := newStore(t, soon)
		park(t, s, head(rec("a", 1)), follower(rec("a", 2)))
		l := claimed(t, s, 1)
		finish(t, l, failedAgain(l.Lines[0]))
		l = claimed(t, s, 1)
		end := settled(l.Lines[0], 1)
		end.Then, end.Failed = parking.Again, l.Lines[0].Records[1].Place
		finish(t, l, end)
		l = claimed(t, s, 1)
		require.Equal(t, 1, l.Lines[0].Round)
		require.Equal(t, []int64{2}, offsets(l.Lines[0]))
	})

	t.Run("ParkingTwiceIsParkingOnce", func(t *testing.T) {
		t.Parallel()
		s, _ := newStore(t, soon)
		for range 3 {
			park(t, s, head(rec("a", 1)), follower(rec("a", 2)), follower(rec("a", 2)))
		}
		require.EqualValues(t, 2, stats(t, s).Records)
	})

	t.Run("AGivenBackLineSpendsNothing", func(t *testing.T) {
		t.Parallel()
		s, _ := newStore(t, soon)
		park(t, s, head(rec("a", 1)), head(rec("b", 2)))
		for range 5 {
			l := claimed(t, s, 2)
			require.Equal(t, 1, l.Lines[0].Round)
			require.Zero(t, l.Lines[0].Deaths)
			require.NoError(t, l.GiveBack(t.Context()))
			require.Empty(t, l.Lines)
		}
	})

	t.Run("AHeldKeyWaitsForAnOperator", func(t *testing.T) {
		t.Parallel()
		s, _ := newStore(t, soon)
		park(t, s, head(rec("a", 1)), follower(rec("a", 2)))
		l := claimed(t, s, 1)
		end := settled(l.Lines[0], 1)
		end.Then = parking.Held
		finish(t, l, end)
		nothingDue(t, s)
		park(t, s, follower(rec("a", 3)))
		nothingDue(t, s)
		ok, err := s.Retry(t.Context(), end.Key)
		require.NoError(t, err)
		require.True(t, ok)
		l = claimed(t, s, 1)
		require.Equal(t, []int64{2, 3}, offsets(l.Lines[0]))
		ok, err = s.Retry(t.Context(), end.Key)
		require.NoError(t, err)
		require.False(t, ok, "somebody works on it")
	})

	t.Run("AHotKeyComesInPartsAndLeavesRoomForOthers", func(t *testing.T) {
		t.Parallel()
		s, _ := newStore(t, soon)
		var es []parking.Entry
		for i := range int64(100) {
			es = append(es, follower(rec("hot", i)))
		}
		park(t, s, es...)
		park(t, s, follower(rec("b", 200)), follower(rec("c", 201)))
		l := claimed(t, s, 3)
		require.NoError(t, l.Load(t.Context(), 30, 1<<20))
		byKey := map[int64]int{}
		for _, line := range l.Lines {
			byKey[line.Key] = len(line.Records)
		}
		require.Equal(t, map[int64]int{keyOf(rec("hot", 0)): 10, keyOf(rec("b", 0)): 1, keyOf(rec("c", 0)): 1}, byKey)
		require.NoError(t, l.Load(t.Context(), 30, 1), "bytes bound it too")
		n := 0
		for _, line := range l.Lines {
			n += len(line.Records)
		}
		require.Equal(t, 1, n)
	})

	t.Run("ARowThatCannotBeReadIsNoLostRow", func(t *testing.T) {
		t.Parallel()
		s, pool := newStore(t, soon)
		park(t, s, head(rec("a", 1)))
		_, err := pool.Exec(t.Context(), `update headrace.parked_records set envelope = '\x09', history = 'x'`)
		require.NoError(t, err)
		l := claimed(t, s, 1)
		require.ErrorIs(t, l.Lines[0].Records[0].Err, parking.ErrEnvelope)
		require.Nil(t, l.Lines[0].Records[0].Record)
	})
}

func TestStoreInEachExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			cfg, err := pgxpool.ParseConfig(pgtest.DSN(t, migrations.Up))
			require.NoError(t, err)
			cfg.ConnConfig.DefaultQueryExecMode = mode
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			s := openStore(t, pool, "r", soon)
			r := whole()
			park(t, s, head(r), follower(rec("b", 5)))
			_, err = s.Blocked(t.Context(), []int64{1, 2})
			require.NoError(t, err)
			l := claimed(t, s, 2)
			_, err = l.Renew(t.Context())
			require.NoError(t, err)
			var ends []parking.End
			for _, line := range l.Lines {
				if line.Key == keyOf(r) {
					require.Equal(t, r, line.Records[0].Record)
				}
				ends = append(ends, failedAgain(line))
			}
			finish(t, l, ends...)
			l = claimed(t, s, 2)
			finish(t, l, settled(l.Lines[0], 1), settled(l.Lines[1], 1))
			require.Zero(t, stats(t, s).Records)
		})
	}
}

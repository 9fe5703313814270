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

func TestLimits(t *testing.T) {
	t.Parallel()

	t.Run("AtItsRecordsNothingIsTakenUntilSomeHaveLeft", func(t *testing.T) {
		t.Parallel()
		s, _ := newStore(t, parking.Policy{Base: time.Millisecond, Cap: time.Millisecond, MaxRecords: 2})
		park(t, s, head(rec("a", 1)), follower(rec("a", 2)))
		err := s.Park(t.Context(), []parking.Entry{head(rec("b", 3))})
		require.ErrorIs(t, err, parking.ErrFull)
		var full *parking.FullError
		require.ErrorAs(t, err, &full)
		require.EqualValues(t, 2, full.Records)
		require.ErrorContains(t, err, "2 records are parked, the limit is 2")
		require.Contains(t, full.Hint(), "headrace parked ls")
		require.EqualValues(t, 2, stats(t, s).Records, "nothing of it is left")
		l := claimed(t, s, 1)
		finish(t, l, settled(l.Lines[0], 1))
		park(t, s, head(rec("b", 3)))
	})

	t.Run("AtItsAgeToo", func(t *testing.T) {
		t.Parallel()
		s, pool := newStore(t, parking.Policy{Base: time.Millisecond, Cap: time.Millisecond, MaxAge: time.Hour})
		park(t, s, head(rec("a", 1)), head(rec("b", 2)))
		_, err := pool.Exec(t.Context(), "update headrace.parked_keys set since = since - interval '2 hours' where key_id = $1", keyOf(rec("a", 1)))
		require.NoError(t, err)
		err = s.Park(t.Context(), []parking.Entry{head(rec("c", 3))})
		require.ErrorIs(t, err, parking.ErrFull)
		require.ErrorContains(t, err, "parked for 2h0m0s, the limit is 1h0m0s")
		require.InDelta(t, 2*time.Hour.Seconds(), stats(t, s).Oldest.Seconds(), 60)
	})

	t.Run("ADelayIsAtMostTheAge", func(t *testing.T) {
		t.Parallel()
		s, pool := newStore(t, parking.Policy{Base: time.Millisecond, Cap: time.Millisecond, MaxAge: time.Hour})
		e := head(rec("a", 1))
		e.Delay = 1000 * time.Hour
		park(t, s, e)
		var due float64
		require.NoError(t, pool.QueryRow(t.Context(), "select extract(epoch from due - now())::float8 from headrace.parked_keys").Scan(&due))
		require.InDelta(t, time.Hour.Seconds(), due, 60)
	})

	t.Run("ALaterDelayIsAtMostWhatIsLeftOfTheAge", func(t *testing.T) {
		t.Parallel()
		s, pool := newStore(t, parking.Policy{Base: time.Millisecond, Cap: time.Millisecond, MaxAge: time.Hour})
		park(t, s, head(rec("a", 1)), follower(rec("b", 2)))
		_, err := pool.Exec(t.Context(), `update headrace.parked_records set parked_at = parked_at - interval '50 minutes',
			history = replace(convert_from(history, 'UTF8'), '"at":"', '"at":"2000-01-01T00:00:00Z","was":"')::bytea`)
		require.NoError(t, err)
		f := feedOf(t, s, pool, quick)
		_, rs := f.next()
		for _, r := range rs {
			require.False(t, trial(r).Last)
			_, err := parking.Repark(t.Context(), r, 1000*time.Hour, parking.Failure{Class: "transient", At: time.Now()})
			require.NoError(t, err)
			left := map[string]time.Duration{"a": 10 * time.Minute, "b": time.Hour}[string(r.Key)] // b was never tried before
			var due float64
			require.NoError(t, pool.QueryRow(t.Context(), "select extract(epoch from due - now())::float8 from headrace.parked_keys where key_id = $1",
				keyOf(rec(string(r.Key), 1))).Scan(&due))
			require.InDelta(t, left.Seconds(), due, 60)
		}
	})

	t.Run("WhatIsTriedForTheAgeHasItsLastTry", func(t *testing.T) {
		t.Parallel()
		s, pool := newStore(t, parking.Policy{Base: time.Millisecond, Cap: time.Millisecond, MaxAge: time.Hour})
		park(t, s, head(rec("a", 1)))
		_, err := pool.Exec(t.Context(), `update headrace.parked_records set parked_at = parked_at - interval '60 minutes',
			history = replace(convert_from(history, 'UTF8'), '"at":"', '"at":"2000-01-01T00:00:00Z","was":"')::bytea`)
		require.NoError(t, err)
		_, rs := feedOf(t, s, pool, quick).next()
		require.Equal(t, 1, trial(rs[0]).Round)
		require.True(t, trial(rs[0]).Last)
		require.True(t, rs[0].Settle(record.Dead))
	})
}

func TestOpen(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, setup string, p parking.Policy) error {
		t.Helper()
		pool := pgtest.New(t, migrations.Up)
		_, err := pool.Exec(t.Context(), setup)
		require.NoError(t, err)
		pool.Reset()
		_, err = parking.Open(t.Context(), pool, "g", "r", p)
		return err
	}
	known := "insert into headrace.consumers (consumer_group, route) values ('g', 'r');"
	t.Run("NeedsARouteThatTheInboxKnows", func(t *testing.T) {
		t.Parallel()
		require.ErrorIs(t, open(t, "select 1", parking.Policy{}), parking.ErrNoRoute)
		require.NoError(t, open(t, known, parking.Policy{}))
	})
	t.Run("RefusesTheOffsetStore", func(t *testing.T) {
		t.Parallel()
		require.ErrorContains(t, open(t, known+"update headrace.consumers set store = 1", parking.Policy{}), "only a route with the inbox can park")
	})
	t.Run("RefusesADatabaseThatMayForget", func(t *testing.T) {
		t.Parallel()
		err := open(t, known+"do $$ begin execute format('alter database %I set synchronous_commit = off', current_database()); end $$", parking.Policy{})
		require.ErrorContains(t, err, "synchronous_commit is off")
	})
	t.Run("RefusesAPolicyThatCannotWork", func(t *testing.T) {
		t.Parallel()
		require.ErrorContains(t, open(t, known, parking.Policy{Rounds: -1}), "Rounds -1")
	})
	t.Run("NeedsTheSchema", func(t *testing.T) {
		t.Parallel()
		_, err := parking.Open(t.Context(), pgtest.New(t), "g", "r", parking.Policy{})
		require.ErrorIs(t, err, migrations.ErrVersion)
	})
}

package parking_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

const patience = 10 * time.Second

// soon has short rounds.
var soon = parking.Policy{Base: time.Millisecond, Cap: time.Millisecond}

func newStore(t testing.TB, p parking.Policy) (*parking.Store, *pgxpool.Pool) {
	t.Helper()
	pool := pgtest.New(t, migrations.Up)
	return openStore(t, pool, "r", p), pool
}

var topicID = uuid.MustParse("6f1a1f60-0000-4000-8000-00000000000a")

// rec is a record of its key; its identity follows from its offset.
func rec(key string, offset int64) *record.Record {
	r := &record.Record{
		Topic: "orders", TopicID: topicID, Partition: 1, Offset: offset, Follows: offset - 1, LeaderEpoch: 3,
		Timestamp: time.UnixMilli(1_790_000_000_000), Key: []byte(key), Value: []byte("v" + strconv.FormatInt(offset, 10)),
	}
	r.Identity = record.Identity{ID: "id-" + strconv.FormatInt(offset, 10), Key: uuid.NewSHA1(topicID, r.Value), Coordinates: offset}
	return r
}

func head(r *record.Record) parking.Entry {
	return parking.Entry{Record: r, Key: keyOf(r), Failed: &parking.Failure{Class: "transient", Attempts: 3, Message: "boom"}}
}

func follower(r *record.Record) parking.Entry { return parking.Entry{Record: r, Key: keyOf(r)} }

func park(t testing.TB, s *parking.Store, entries ...parking.Entry) {
	t.Helper()
	require.NoError(t, s.Park(t.Context(), entries))
}

// claimed waits for a lease of n lines, with their records.
func claimed(t testing.TB, s *parking.Store, n int) *parking.Lease {
	t.Helper()
	var l *parking.Lease
	require.Eventually(t, func() bool {
		var err error
		l, err = s.Claim(t.Context(), n)
		require.NoError(t, err)
		return l != nil
	}, patience, time.Millisecond)
	require.Len(t, l.Lines, n)
	require.NoError(t, l.Load(t.Context(), 500, 1<<20))
	return l
}

func suspect(t testing.TB, s *parking.Store) *parking.Lease {
	t.Helper()
	var l *parking.Lease
	require.Eventually(t, func() bool {
		var err error
		l, err = s.ClaimSuspect(t.Context())
		require.NoError(t, err)
		return l != nil
	}, patience, time.Millisecond)
	require.NoError(t, l.Load(t.Context(), 1, 1<<20))
	return l
}

func nothingDue(t testing.TB, s *parking.Store) {
	t.Helper()
	l, err := s.Claim(t.Context(), 10)
	require.NoError(t, err)
	require.Nil(t, l)
	l, err = s.ClaimSuspect(t.Context())
	require.NoError(t, err)
	require.Nil(t, l)
}

func finish(t testing.TB, l *parking.Lease, ends ...parking.End) {
	t.Helper()
	fenced, err := l.Finish(t.Context(), ends)
	require.NoError(t, err)
	require.Empty(t, fenced)
}

// settled ends a line with its first n records settled.
func settled(line *parking.Line, n int) parking.End {
	e := parking.End{Key: line.Key, Round: line.Round}
	for _, p := range line.Records[:n] {
		e.Settled = append(e.Settled, p.Place)
	}
	return e
}

func failedAgain(line *parking.Line) parking.End {
	e := settled(line, 0)
	p := line.Records[0]
	e.Then, e.Failed, e.History = parking.Again, p.Place, p.History.With(parking.Failure{Class: "ambiguous", Message: "again"})
	return e
}

func offsets(line *parking.Line) (os []int64) {
	for _, p := range line.Records {
		os = append(os, p.Offset)
	}
	return os
}

func stats(t testing.TB, s *parking.Store) parking.Stats {
	t.Helper()
	st, err := s.Stats(t.Context())
	require.NoError(t, err)
	return st
}

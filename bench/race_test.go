package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/bench/internal/child"
	"github.com/headrace/headrace/bench/internal/load"
	"github.com/headrace/headrace/bench/internal/result"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
)

// TestMain is a child when the driver starts it as one: the real ones, and one that cheats.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && strings.HasPrefix(os.Args[1], "{") {
		if err := serve(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	pgtest.Main(m)
}

func serve(arg string) error {
	var spec child.Spec
	if err := json.Unmarshal([]byte(arg), &spec); err != nil {
		return err
	}
	if spec.Mode != "cheat" {
		return act(context.Background(), []string{arg})
	}
	return child.Serve(context.Background(), spec, os.Stdin, os.Stdout, cheat)
}

// cheat posts everything at once, to one account, without reading a record.
func cheat(ctx context.Context, s *child.Session) error {
	db, err := pgxpool.New(ctx, s.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	s.Ready()
	s.First()
	if _, err := db.Exec(ctx, `update accounts set balance = 1000000000 where id = 0`); err != nil {
		return err
	}
	s.Done(s.Records)
	<-ctx.Done()
	return nil
}

// small is a bench on a fake broker: what a contender does right or wrong it does there too.
func small(t *testing.T) *bench {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	dsn := pgtest.DSN(t)
	return &bench{
		settings: settings{records: 600, rounds: 1, keys: 20},
		brokers:  kafkatest.Fake(t).ListenAddrs(), db: pgtest.Pool(t, dsn), dsn: dsn, self: self,
	}
}

func TestEveryContenderInGoIsVerified(t *testing.T) {
	t.Parallel()
	b := small(t)
	field := append([]contender{stock()}, routes(stores...)...)
	field = append(append(append(field, experts()...), others()...), limits()...)
	require.NoError(t, b.race(t.Context(), trial{scenario: "test", shape: b.shape(3), field: field, rounds: 1}))
	require.Len(t, b.results, len(field))
	for _, r := range b.results {
		require.True(t, r.Verified, "%s: %s", r.Contender, r.Error)
		require.Positive(t, r.Rate, r.Contender)
		require.NotNil(t, r.Allocs, r.Contender)
	}
	result.Compare(b.results)
	require.NotNil(t, b.results[1].RatioToStock)
}

func TestContenderThatCheatsHasNoFigure(t *testing.T) {
	t.Parallel()
	b := small(t)
	field := []contender{{name: "cheat", mode: "cheat", books: load.StockInbox}, experts()[0]}
	require.NoError(t, b.race(t.Context(), trial{scenario: "test", shape: b.shape(1), field: field, rounds: 1}))
	require.False(t, b.results[0].Verified)
	require.Contains(t, b.results[0].Error, "account ")
	require.Zero(t, b.results[0].Rate)
	require.True(t, b.results[1].Verified, "the others go on: %s", b.results[1].Error)
	require.ErrorContains(t, failed(b.results), "cheat")
}

func TestRoutesStandWhatTheScenariosDoToThem(t *testing.T) {
	t.Parallel()
	b := small(t)
	for _, ask := range []func(context.Context, *bench) error{duplicates, poison, hot} {
		require.NoError(t, ask(t.Context(), b))
	}
	require.NoError(t, failed(b.results))
	require.NotEmpty(t, b.results)
}

func TestLatencyIsOfEveryRecordThatWasDue(t *testing.T) {
	t.Parallel()
	b := small(t)
	b.load = 500_000_000
	for _, c := range append(routes("inbox"), others()...) {
		run, err := b.underLoad(t.Context(), c, 100)
		require.NoError(t, err, c.name)
		require.Positive(t, run.P50, c.name)
		require.GreaterOrEqual(t, run.P999, run.P50, c.name)
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/idempotency"
)

func newIdempotency(s streams) *cobra.Command {
	return group(&cobra.Command{
		Use:   "idempotency",
		Short: "Look at a service's idempotency keys, and settle those that nobody knows the outcome of",
		Long: `A service that runs each key once, on effects outside of its database, leaves a key unknown when its run did not come to
an end: nobody knows whether it was done, and its requests are answered 409 until somebody says. 'ls' lists such keys,
'show' shows one, 'resolve' says that it was done or not. Look in the other system first.`,
		Example: `  headrace idempotency ls
  headrace idempotency show 5a1f0c3e-7b1d-4c55-9d0e-0c6a2f0e9b11
  headrace idempotency resolve 5a1f0c3e-7b1d-4c55-9d0e-0c6a2f0e9b11 --not-done --yes`,
	}, newKeysList(s), newKeysShow(s), newKeysResolve(s))
}

// keysFlags say which keys of which table of which database.
type keysFlags struct {
	dsn                             dsnFlag
	table, route, method, principal string
	flags                           *pflag.FlagSet
}

func (f *keysFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.flags = fs
	fs.SortFlags = false // the important ones first
	fs.StringVar(&f.route, "route", "", "only keys of this `route` of the service")
	fs.StringVar(&f.method, "method", "", "only keys of this `method`, as POST")
	fs.StringVar(&f.principal, "principal", "", "only keys of this `principal`")
}

// finish registers the flags that come last in the help.
func (f *keysFlags) finish(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.table, "table", idempotency.DefaultTable, "the service's `table`")
	f.dsn.register(cmd.Flags(), "the service's database")
}

// open gives the keys, and what ends their connections.
func (f *keysFlags) open(ctx context.Context, s streams) (keys *idempotency.Keys, closes func(), err error) {
	pool, closes, err := f.dsn.open(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	keys, err = idempotency.New(pool, idempotency.Config{Principal: idempotency.OnePrincipal, Table: f.table})
	if err != nil {
		closes()
		return nil, nil, usagef("--table: %w", err).fix("name it as the service's Config.Table does")
	}
	return keys, closes, nil
}

// keysError adds what to do about a database without the table.
func keysError(err error) error {
	const noSchema, noTable = "3F000", "42P01"
	var server *pgconn.PgError
	if errors.As(err, &server) && (server.Code == noSchema || server.Code == noTable) {
		return &failure{err: errors.New("the database has no such keys: " + server.Message), hint: "check --table, and --dsn or " + envDSN + ": it is to be the service's"}
	}
	return err
}

// has says whether a key is meant.
func (f *keysFlags) has(k idempotency.Key) bool {
	return (f.route == "" || f.route == k.Route) && (f.method == "" || f.method == k.Method) && (f.principal == "" || f.principal == k.Principal)
}

// key is what the flags say of one.
func (f *keysFlags) key(name string) idempotency.Key {
	return idempotency.Key{Route: f.route, Method: f.method, Principal: f.principal, Key: name}
}

// unknownJSON is a key as 'ls --json' prints it, one a line.
type unknownJSON struct {
	Route     string     `json:"route"`
	Method    string     `json:"method"`
	Principal string     `json:"principal"`
	Key       string     `json:"key"`
	Started   *time.Time `json:"started"`
	Since     *time.Time `json:"since"`
	Note      string     `json:"note"`
}

type keysListFlags struct {
	keysFlags
	listing
}

func newKeysList(s streams) *cobra.Command {
	var f keysListFlags
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the keys whose outcome is unknown, those that wait for longest first",
		Long: `Lists the keys of which nobody knows whether they were done: since when, and why, if anybody could tell. Without a note
their process ended, or did not come to an end in its time. Keys in progress and finished ones are not listed.`,
		Example: `  headrace idempotency ls
  headrace idempotency ls --route charge --table shop.idempotency
  headrace idempotency ls --json | jq -r .key`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.bound(cmd.Flags(), "keys"); err != nil {
				return err
			}
			return f.list(cmd.Context(), s)
		},
	}
	f.register(cmd)
	f.registerListing(cmd.Flags(), "show `n` keys, 0 for all")
	f.finish(cmd)
	return cmd
}

func (f *keysListFlags) list(ctx context.Context, s streams) error {
	keys, closes, err := f.open(ctx, s)
	if err != nil {
		return err
	}
	defer closes()
	list, err := keys.Unknown(ctx, math.MaxInt32)
	if err != nil {
		return keysError(err)
	}
	t := table{header: []string{"KEY", "ROUTE", "METHOD", "PRINCIPAL", "STARTED", "UNKNOWN SINCE", "NOTE"}}
	n := 0
	for _, u := range list {
		if !f.has(u.Key) {
			continue
		}
		if n++; f.limit > 0 && n > f.limit {
			continue
		}
		if f.json {
			if err := writeJSON(s.out, unknownJSON{u.Route, u.Method, u.Principal, u.Key.Key, timeJSON(u.StartedAt), timeJSON(u.Since), u.Note}); err != nil {
				return err
			}
			continue
		}
		cell := func(text string) string { return dlq.Escape([]byte(text), maxCell) }
		t.add(dlq.Escape([]byte(u.Key.Key), 0), cell(u.Route), cell(u.Method), cell(u.Principal), moment(u.StartedAt), moment(u.Since), dlq.Preview([]byte(u.Note), maxMessage))
	}
	return f.sum(s, &t, n)
}

func (f *keysListFlags) sum(s streams, t *table, n int) error {
	switch {
	case f.json:
		return nil
	case n == 0:
		fmt.Fprintln(s.err, "no key is unknown")
		return nil
	}
	if err := t.compact().write(s.out, s.width); err != nil {
		return err
	}
	line := plural(int64(n), "key")
	if more := n - len(t.rows); more > 0 {
		line += fmt.Sprintf("; the first %d are shown, --limit 0 shows all", len(t.rows))
	}
	fmt.Fprintln(s.out, line)
	return nil
}

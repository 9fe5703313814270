package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/pflag"

	"github.com/headrace/headrace/internal/pools"
)

// envDSN stands in for --dsn.
const envDSN = "DATABASE_URL"

// clientName is what brokers and database know the command by.
const clientName = "headrace-cli"

// dsnFlag names a database.
type dsnFlag struct{ value string }

func (f *dsnFlag) register(fs *pflag.FlagSet, what string) {
	fs.StringVar(&f.value, "dsn", "", what+", a Postgres `URL`; better in env "+envDSN+", which other users of the machine cannot see")
}

// open connects to the database that the flag names, else the environment. closes ends the connections, within
// pools.Grace: the command ends also while the server hangs.
func (f *dsnFlag) open(ctx context.Context, s streams) (pool *pgxpool.Pool, closes func(), err error) {
	from, dsn := "--dsn", f.value
	if dsn == "" {
		from, dsn = envDSN, s.getenv(envDSN)
	}
	if dsn == "" {
		return nil, nil, usagef("no database").fix("set " + envDSN + ", or add --dsn postgres://user@host:5432/database")
	}
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil || misread(cfg) {
		// Not a word of it: what is wrong in a connection string is, as a rule, the password.
		return nil, nil, usagef("%s is no Postgres connection string", from).
			fix("write postgres://user:password@host:5432/database, with %40 for an @ in the password, %3A for :, %2F for /, %23 for #, %3F for ?, %25 for %")
	}
	cfg.MaxConns = 2
	if cfg.ConnConfig.ConnectTimeout == 0 || cfg.ConnConfig.ConnectTimeout > reachWithin {
		cfg.ConnConfig.ConnectTimeout = reachWithin
	}
	if pool, closes, err = pools.Open(ctx, cfg, clientName); err != nil {
		return nil, nil, databaseError(cfg, err)
	}
	if err := pool.Ping(ctx); err != nil {
		closes()
		if ctx.Err() != nil { // somebody was tired of waiting
			return nil, nil, context.Cause(ctx)
		}
		return nil, nil, databaseError(cfg, err)
	}
	return pool, closes, nil
}

// misread says that a password with an @ or a / in it was taken apart: the rest of it is in the host or the database now,
// where an error would show it.
func misread(cfg *pgxpool.Config) bool {
	hosts := []string{cfg.ConnConfig.Host}
	for _, f := range cfg.ConnConfig.Fallbacks {
		hosts = append(hosts, f.Host)
	}
	at := func(name string) bool { return strings.Contains(name, "@") && !strings.HasPrefix(name, "/") } // not of a socket
	return slices.ContainsFunc(hosts, at) || strings.Contains(cfg.ConnConfig.Database, "@")
}

// databaseError is an error without the database's password, whatever the driver or the server put into it.
func databaseError(cfg *pgxpool.Config, err error) error {
	text := shortCause(err)
	if password := cfg.ConnConfig.Password; len(password) > 3 {
		text = strings.ReplaceAll(text, password, "***")
	}
	said := "cannot be reached"
	if errors.As(err, new(*pgconn.PgError)) {
		said = "does not let us in"
	}
	address := net.JoinHostPort(cfg.ConnConfig.Host, strconv.Itoa(int(cfg.ConnConfig.Port)))
	return &failure{
		err:  fmt.Errorf("the database at %s %s: %s", address, said, strings.ReplaceAll(text, "\n\t", " ")),
		hint: databaseHint(err),
	}
}

// shortCause is what a network or a server said, without what the driver tells around it: user, database and each
// address are in the connection string.
func shortCause(err error) string {
	var server *pgconn.PgError
	var network *net.OpError
	switch errno := syscall.Errno(0); {
	case errors.As(err, &server):
		return server.Message + " (" + server.Code + ")"
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &network):
		return network.Err.Error()
	}
	return err.Error()
}

func databaseHint(err error) string {
	const wrongPassword, wrongLogin, noDatabase = "28P01", "28000", "3D000"
	if server := (*pgconn.PgError)(nil); errors.As(err, &server) {
		switch server.Code {
		case wrongPassword, wrongLogin:
			return "check user and password of --dsn or " + envDSN
		case noDatabase:
			return "check the database's name in --dsn or " + envDSN
		}
	}
	return "see that it is up, and check host and port of --dsn or " + envDSN
}

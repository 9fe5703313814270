package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/test/attack/lab"
)

func postgres() []Fault {
	return []Fault{
		{"postgres-kill", Database, killPostgres},
		{"postgres-restart", Database, restartPostgres},
		{"postgres-terminate", Database, terminateSessions},
		{"postgres-read-only", Database, setting("default_transaction_read_only", "on")},
		{"postgres-statement-timeout", Database, setting("statement_timeout", "20ms")},
		{"postgres-too-many-connections", Database, fewConnections},
		{"postgres-inbox-locked", Database, lockInbox},
		{"postgres-lost-commits", Database, loseCommits},
		{"postgres-migrated", Database, migrate},
		{"postgres-disk-full", Database, fillDisk},
	}
}

// killPostgres kills the server with all its sessions; it recovers from its log.
func killPostgres(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	if err := s.Postgres.Kill(); err != nil {
		return err
	}
	backoff.Wait(ctx, between(rng, 0, 5*time.Second))
	return s.Postgres.Start(context.WithoutCancel(ctx))
}

func restartPostgres(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	if err := s.Postgres.Stop(); err != nil {
		return err
	}
	backoff.Wait(ctx, between(rng, 0, 3*time.Second))
	return s.Postgres.Start(context.WithoutCancel(ctx))
}

const terminateSQL = `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`

// terminateSessions ends all of them again and again.
func terminateSessions(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	for range 1 + rng.IntN(20) {
		if err := s.Exec(context.WithoutCancel(ctx), terminateSQL); err != nil {
			return err
		}
		if !backoff.Wait(ctx, between(rng, 50*time.Millisecond, 800*time.Millisecond)) {
			return nil
		}
	}
	return nil
}

// setting sets a parameter of the database for a while, as after a failover to a standby. Sessions get it when they are new.
func setting(name, value string) func(context.Context, *lab.Site, *rand.Rand) error {
	return func(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
		database := pgx.Identifier{s.Group}.Sanitize()
		for _, sql := range []string{fmt.Sprintf("alter database %s set %s = '%s'", database, name, value), terminateSQL} {
			if err := s.Exec(ctx, sql); err != nil {
				return err
			}
		}
		backoff.Wait(ctx, between(rng, time.Second, 8*time.Second))
		ctx = context.WithoutCancel(ctx)
		return errors.Join(s.Exec(ctx, fmt.Sprintf("alter database %s reset %s", database, name)), s.Exec(ctx, terminateSQL))
	}
}

// fewConnections lets nobody in, as a server whose connections are all taken: the members are superusers, whom no limit
// stops.
func fewConnections(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	var kept []*pgx.Conn
	defer func() {
		for _, conn := range kept {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}()
	if err := s.Exec(ctx, terminateSQL); err != nil {
		return err
	}
	for { // until the server says no
		conn, err := s.Connect(ctx)
		if err != nil {
			break
		}
		kept = append(kept, conn)
	}
	backoff.Wait(ctx, between(rng, time.Second, 8*time.Second))
	return nil
}

// lockInbox is somebody's maintenance.
func lockInbox(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	conn, err := s.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // with it goes the lock
	table := pick(rng, "headrace.inbox", "headrace.offsets", "headrace.outbox", "balances")
	if _, err := conn.Exec(ctx, "begin; lock table "+table+" in "+pick(rng, "share", "access exclusive")+" mode"); err != nil {
		return err
	}
	backoff.Wait(ctx, between(rng, time.Second, 10*time.Second))
	return nil
}

// migrate is a migration of the application's own tables under load, and ours again: plans that connections remember are
// wrong from then on.
func migrate(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	pool, err := pgxpool.New(ctx, s.DSN)
	if err != nil {
		return err
	}
	defer pool.Close()
	table := pick(rng, "effects", "balances")
	for _, sql := range []string{
		"alter table " + table + " add column extra text default 'x'", "alter table " + table + " alter column amount type numeric",
		"alter table " + table + " alter column amount type bigint", "alter table " + table + " drop column extra",
	} {
		if _, err := pool.Exec(context.WithoutCancel(ctx), sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
		backoff.Wait(ctx, between(rng, 0, time.Second))
	}
	return migrations.Up(context.WithoutCancel(ctx), pool)
}

// loseCommits has the server commit, and keeps the answer, or cuts the connection in its place.
func loseCommits(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	stop := s.SQL.Always(pgtest.Commit, pick(rng, pgtest.CutReply, pgtest.SwallowReply, pgtest.CutBefore))
	defer stop()
	backoff.Wait(ctx, between(rng, 200*time.Millisecond, 4*time.Second))
	return nil
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/headrace/headrace/migrations"
)

func newMigrate(s streams) *cobra.Command {
	return group(&cobra.Command{
		Use:   "migrate",
		Short: "Bring the database's schema up to date",
		Long: `Headrace keeps its inbox in the schema "headrace" of the database that the handlers write to.
'up' creates and updates it, 'status' shows where it stands.`,
		Example: `  DATABASE_URL=postgres://owner@db/billing headrace migrate up
  DATABASE_URL=postgres://owner@db/billing headrace migrate status`,
	}, newMigrateUp(s), newMigrateStatus(s))
}

func newMigrateUp(s streams) *cobra.Command {
	var dsn dsnFlag
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Apply the migrations that are missing",
		Long: `Applies the migrations that the database lacks. Run it as often as you like, by any number of processes at
once: one applies, the others wait and find nothing to do. The role needs the right to create a schema, or a schema
"headrace" of its own.`,
		Example: `  DATABASE_URL=postgres://owner@db/billing headrace migrate up`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pool, closes, err := dsn.open(cmd.Context(), s)
			if err != nil {
				return err
			}
			defer closes()
			return migrateUp(cmd.Context(), s, pool)
		},
	}
	dsn.register(cmd.Flags(), "database to migrate")
	return cmd
}

func migrateUp(ctx context.Context, s streams, pool *pgxpool.Pool) error {
	applied, err := migrations.Apply(ctx, pool)
	if err != nil {
		return migrateError(err)
	}
	if err := migrations.Check(ctx, pool); err != nil {
		return err // a newer build was here
	}
	for _, m := range applied {
		fmt.Fprintln(s.out, "applied", m.Name)
	}
	if len(applied) == 0 {
		fmt.Fprintln(s.out, "nothing to do")
	}
	fmt.Fprintf(s.out, "schema headrace is at version %d, the latest of this build\n", migrations.Latest)
	return nil
}

// migrateError adds what to do about a role that may not.
func migrateError(err error) error {
	const denied = "42501"
	if server := (*pgconn.PgError)(nil); errors.As(err, &server) && server.Code == denied {
		return &failure{
			err:  fmt.Errorf("migrate: %w", err),
			hint: "use a role that may, or let an administrator run: create schema headrace authorization " + "\"<role>\"",
		}
	}
	return fmt.Errorf("migrate: %w", err)
}

func newMigrateStatus(s streams) *cobra.Command {
	var dsn dsnFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which migrations are applied",
		Long:  `Shows every migration of this build and when it was applied. It changes nothing, in an empty database either.`,
		Example: `  DATABASE_URL=postgres://billing@db/billing headrace migrate status
  headrace migrate status --json | jq .pending`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pool, closes, err := dsn.open(cmd.Context(), s)
			if err != nil {
				return err
			}
			defer closes()
			return migrateStatus(cmd.Context(), s, pool, asJSON)
		},
	}
	dsn.register(cmd.Flags(), "database to look at")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// status is what 'migrate status --json' prints.
type status struct {
	Version    int64       `json:"version"`
	Latest     int64       `json:"latest"`
	Pending    int         `json:"pending"`
	Migrations []migration `json:"migrations"`
}

type migration struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	AppliedAt *time.Time `json:"applied_at"` // null: pending
}

func migrateStatus(ctx context.Context, s streams, pool *pgxpool.Pool, asJSON bool) error {
	st, err := readStatus(ctx, pool)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(s.out).Encode(st)
	}
	t := table{header: []string{"VERSION", "APPLIED", "NAME"}, right: map[string]bool{"VERSION": true}}
	for _, m := range st.Migrations {
		applied := "pending"
		if m.AppliedAt != nil {
			applied = moment(*m.AppliedAt)
		}
		t.add(strconv.FormatInt(m.Version, 10), applied, m.Name)
	}
	if err := t.write(s.out, s.width); err != nil {
		return err
	}
	_, err = fmt.Fprintln(s.out, st.summary())
	return err
}

// summary is the line under the table, with what to do.
func (st status) summary() string {
	switch {
	case st.Version > st.Latest:
		return fmt.Sprintf("the database is at version %d, this build knows %d: use a newer build", st.Version, st.Latest)
	case st.Pending > 0:
		return fmt.Sprintf("the database is at version %d of %d, %d pending: run 'headrace migrate up'", st.Version, st.Latest, st.Pending)
	}
	return fmt.Sprintf("the database is at version %d, the latest of this build", st.Version)
}

func readStatus(ctx context.Context, pool *pgxpool.Pool) (status, error) {
	list, err := migrations.Status(ctx, pool)
	if err != nil {
		return status{}, fmt.Errorf("read the migrations: %w", err)
	}
	version, err := migrations.Version(ctx, pool)
	if err != nil {
		return status{}, fmt.Errorf("read the version: %w", err)
	}
	st := status{Version: version, Latest: migrations.Latest}
	for _, m := range list {
		one := migration{Version: m.Version, Name: m.Name}
		if m.AppliedAt.IsZero() {
			st.Pending++
		} else {
			at := m.AppliedAt.UTC()
			one.AppliedAt = &at
		}
		st.Migrations = append(st.Migrations, one)
	}
	return st, nil
}

// moment is a time as tables show it.
func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

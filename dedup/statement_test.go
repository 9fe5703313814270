package dedup

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/record"
)

func TestStatements(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		"select 1":                              "",
		"update commit set rollback = 1":        "",
		"select 'a; commit'":                    "",
		"select $$a; commit$$":                  "",
		"select $x$ ; commit; $x$ , $1":         "",
		"select e'\\'; commit'":                 "",
		"select \"commit\" from \"set_config\"": "",
		"-- commit\nselect 1":                   "",
		"/* /* commit; */ ; */ select 1":        "",
		"savepoint a; rollback to a":            "",
		"rollback to savepoint a":               "",
		"rollback work to a":                    "",
		"release a":                             "",
		"set_x":                                 "",
		"select settings from set":              "",
		"create table t ()":                     "",
		"lock table t":                          "",
		"":                                      "",
		";;":                                    "",
		"  Commit ":                             "commit",
		"/* a */ commit -- b":                   "commit",
		"select 1;commit":                       "commit",
		"select 1; -- x\n COMMIT AND CHAIN":     "commit",
		"end":                                   "end",
		"abort":                                 "abort",
		"start transaction":                     "start",
		"begin":                                 "begin",
		"rollback":                              "rollback",
		"rollback and chain":                    "rollback",
		"rollback to headrace":                  "rollback",
		"release savepoint headrace":            "release",
		"savepoint headrace":                    "savepoint",
		"prepare transaction 'x'":               "prepare transaction",
		"commit prepared 'x'":                   "commit",
		"set local work_mem = 1":                "set local",
		"set constraints all immediate":         "set constraints",
		"set search_path = x":                   "set search_path",
		"reset all":                             "reset all",
		"discard all":                           "discard all",
		"listen x":                              "listen x",
		"select set_config('a.b', '1', true)":   "set_config",
		"select pg_advisory_lock(1)":            "pg_advisory_lock",
		"select pg_catalog.pg_advisory_lock(1)": "pg_advisory_lock",
		"create temp table t ()":                "create temp",
		"create local temporary table t ()":     "create local",
		"select $1; commit":                     "commit",
		"select 'it''s'; commit":                "commit",
		"select $tag$x$tag$; commit":            "commit",
		"select 1e5; commit":                    "commit",
		"select pg_advisory_xact_lock(1)":       "",

		`rollback to savepoint U&"\0068eadrace"`:                                               `u&"\0068eadrace"`,
		`rollback to u&"!0068eadrace" uescape '!'`:                                             `u&"!0068eadrace"`,
		`select pg_catalog.U&"set_con\0066ig"('a.b', '', false)`:                               `u&"set_con\0066ig"`,
		`select U&'\0061', u & 1, u, "U&" from u`:                                              "",
		"update pg_settings set setting = 'x' where name = 'search_path'":                      "update pg_settings",
		"with w as (update pg_catalog.\"pg_settings\" set setting = 'x' returning 1) select 1": "update pg_settings",
		"select setting from pg_settings":                                                      "",
	} {
		err := (&statements{}).check(sql)
		if want == "" {
			require.NoError(t, err, sql)
			continue
		}
		var e *TxError
		require.ErrorAs(t, err, &e, sql)
		require.Equal(t, want, e.Statement, sql)
	}
}

// TestStatements_WhatStaysInTheSession has what is local to a transaction, refused where records share one, and what
// outlives even that.
func TestStatements_WhatStaysInTheSession(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]struct{ shared, solo string }{
		"declare c cursor for select 1": {"declare", ""},
		"declare \"c\" no scroll cursor without hold for with hold as (select 1) table hold": {"declare", ""},
		"declare c insensitive scroll cursor with hold for select 1":                         {"declare", "declare"},

		"prepare p as select 1":               {"prepare", "prepare"},
		"prepare \"transaction\" as select 1": {"prepare", "prepare"},
		"deallocate p":                        {"deallocate p", "deallocate p"},
		"deallocate all":                      {"deallocate all", "deallocate all"},
		"execute p":                           {},
		"close c":                             {},
		"create temp table x (a int)":         {"create temp", "create temp"},

		"create temp table x (a int) on commit drop":                                              {"create temp", ""},
		"create global temporary table x on commit drop as select 1":                              {"create global", ""},
		"create temp table x (a int) on commit delete rows":                                       {"create temp", "create temp"},
		"create temp table x (a int) on commit drop; create temp table y ()":                      {"create temp", "create temp"},
		"create or replace local temp view v as select 1":                                         {"create or", "create or"},
		"create temp sequence s":                                                                  {"create temp", "create temp"},
		"create table pg_temp.x (a int)":                                                          {"create table", "create table"},
		"create table \"pg_temp\".x (a int)":                                                      {"create table", "create table"},
		"create function pg_temp_3.f() returns int language sql as 'select 1'":                    {"create function", "create function"},
		"create table pg_temperature (temp int, temporary text)":                                  {},
		"create table temp (a int)":                                                               {},
		"select 1 as a into temp x":                                                               {"select", "select"},
		"select 1 as a into local temporary table x":                                              {"select", "select"},
		"select 1 as a into pg_temp.x":                                                            {"select", "select"},
		"with w as (select 1 as a) select a into temp x from w":                                   {"with", "with"},
		"select 1 as a into x":                                                                    {},
		"insert into temp values (1)":                                                             {},
		"insert into temporary (a) select temp from temp":                                         {},
		"merge into temp using s on true when matched then do nothing":                            {},
		"select 'into temp', \"into\" temp from t":                                                {},
		"select \"set_config\"('search_path', 'nowhere', true)":                                   {"set_config", ""},
		"select pg_catalog . \"set_config\" /* x */ -- y\n ('a.b', '', true)":                     {"set_config", ""},
		"select set_config('a.b', concat('x', ')'), TRUE), set_config($1, $2, /* is it? */ true)": {"set_config", ""},
		"select set_config('a.b', e'\\', true', false)":                                           {"set_config", "set_config"},
		"select set_config('a.b', '', $1)":                                                        {"set_config", "set_config"},
		"select set_config('a.b', '', not true)":                                                  {"set_config", "set_config"},
		"select set_config('a.b', '', true and $1)":                                               {"set_config", "set_config"},
		"select set_config('a.b', '', (select false, true)":                                       {"set_config", "set_config"},
		"select set_config('a.b', '', true":                                                       {"set_config", "set_config"},
		"select set_config('a.b', '', true), \"set_config\"('a.b', '', false)":                    {"set_config", "set_config"},
		"select \"pg_advisory_lock\"(1)":                                                          {"pg_advisory_lock", "pg_advisory_lock"},
		"select \"SET_CONFIG\"(1), 1 as \"set_config\", set_config from t":                        {},
		"savepoint \"headrace\"":                                                                  {"savepoint", "savepoint"},
		"release \"headrace\"":                                                                    {"release", "release"},
		"rollback work to savepoint headrace":                                                     {"rollback", "rollback"},
		"rollback work to savepoint mine":                                                         {},
		"insert into t (\"commit\") values (1)":                                                   {},
	} {
		requireRefused(t, want.shared, (&statements{}).check(sql), sql)
		requireRefused(t, want.solo, (&statements{solo: true}).check(sql), sql+" (solo)")
	}
}

func requireRefused(t *testing.T, want string, err error, sql string) {
	t.Helper()
	if want == "" {
		require.NoError(t, err, sql)
		return
	}
	var e *TxError
	require.ErrorAs(t, err, &e, sql)
	require.Equal(t, want, e.Statement, sql)
}

// TestHandlerTx_Leavings runs against the server what would be left to the neighbours of a record in its group.
func TestHandlerTx_Leavings(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{
		"declare c cursor for select 1",

		"prepare p as select 1",
		"select 1 as a into temp x",
		"create table pg_temp.x (a int)",
		`select "set_config"('search_path', 'nowhere', true)`,
	} {
		t.Run("FailTheirRecordAndNoNeighbour/"+sql, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, setup{route: RouteConfig{Writers: 1}})
			rs := recs(newOwner(), 40)
			leave := func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
				_, err := tx.Exec(ctx, sql)
				return err
			}
			b.run(rs, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
				if r.Offset%2 == 0 {
					return leave(ctx, tx, r)
				}
				return effect(ctx, tx, r)
			})
			for i, r := range rs {
				if i%2 == 0 {
					requireErr(t, ErrHandlerTx, r)
				} else {
					requireOutcomes(t, record.Effected, r)
				}
			}
			b.requireLedger(20)
		})
	}
	for _, sql := range []string{
		"declare c cursor for select 1",

		"create temp table x (a int) on commit drop",
		`select "set_config"('search_path', 'nowhere', true)`,
	} {
		t.Run("EndWithTheirTransactionWhereItIsTheRecordsOwn/"+sql, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, setup{route: RouteConfig{Writers: 1, Solo: true}})
			rs := recs(newOwner(), 6)
			b.run(rs, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
				if err := effect(ctx, tx, r); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, sql)
				return err
			})
			requireOutcomes(t, record.Effected, rs...)
			b.requireLedger(6)
		})
	}
}

// FuzzStatements_Quoted is about what stands in literals and names: it is no statement, and hides none.
func FuzzStatements_Quoted(f *testing.F) {
	for _, text := range []string{"", "'; commit", `"; commit`, "into temp", "$$", "/*", "--", "\\", "set_config", "pg_temp", "\x00\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		literal := "'" + strings.ReplaceAll(text, "'", "''") + "'"
		quotedName := `"` + strings.ReplaceAll(text, `"`, `""`) + ` "`
		sql := "select " + literal + " as " + quotedName + " from t"
		require.NoError(t, (&statements{}).check(sql), sql)
		requireRefused(t, "declare", (&statements{}).check(sql+"; declare "+quotedName+" cursor for select 1"), sql)
		requireRefused(t, "set_config", (&statements{}).check(sql+`; select "set_config"(`+literal+")"), sql)
		requireRefused(t, "select", (&statements{}).check("select "+literal+" into temp "+quotedName), sql)
	})
}

func FuzzStatements(f *testing.F) {
	for _, sql := range []string{"commit", "$a$", "/*", "'", "e'\\", "select $1", "\"", "--", "$", "é$", "1$a$"} {
		f.Add(sql)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		s := &statements{}
		first := s.check(sql)
		require.Equal(t, first, s.check(sql))
		// Whatever comes before it, on a line of its own, an honest commit is found.
		if (scanner{text: sql}).plain() {
			require.Error(t, (&statements{}).check(sql+"\n;commit"), "%q", sql)
		}
	})
}

// plain says that a text opens nothing that would swallow what comes after it.
func (s scanner) plain() bool {
	for i := range len(s.text) {
		if c := s.text[i]; c == '\'' || c == '"' || c == '$' || c == '/' || c == '*' {
			return false
		}
	}
	return true
}

package idempotency

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Schema is the SQL that makes a table for [Config].Table, if it is not there: for services that have no other part of
// Headrace in their database, to be run by their own migrations. It does not make the schema that the table is in. A
// later version of this package that needs another table says so in the changelog, and how to get there.
//
// It panics if table is no name, as Config.Table wants it.
func Schema(table string) string {
	if !tableName.MatchString(table) {
		panic(fmt.Sprintf("idempotency: table %q is no name or schema.name in lower case of at most 40 characters", table))
	}
	_, name, qualified := strings.Cut(table, ".")
	if !qualified {
		name = table
	}
	return strings.NewReplacer("{table}", quoted(table), "{name}", name).Replace(schema)
}

// quoted is a table's name as SQL has it: one that is a word of SQL is a name then too.
func quoted(table string) string { return pgx.Identifier(strings.Split(table, ".")).Sanitize() }

// schema is migration 00004, word for word but for the names; a test compares what they make.
const schema = `create table if not exists {table} (
    route       text collate "C" not null,
    method      text collate "C" not null,
    principal   text collate "C" not null,
    key         text collate "C" not null,
    fingerprint bytea       not null,
    token       uuid        not null,
    status      smallint,
    header      bytea,
    body        bytea,
    note        text,
    started_at  timestamptz not null default statement_timestamp(),
    deadline    timestamptz,
    finished_at timestamptz,
    primary key (route, method, principal, key)
);
create index if not exists {name}_finished_at on {table} (finished_at) where finished_at is not null;
create index if not exists {name}_deadline on {table} (deadline) where status is null;
comment on table {table} is 'what each Idempotency-Key was answered; status null and deadline past: nobody knows whether it was done';
`

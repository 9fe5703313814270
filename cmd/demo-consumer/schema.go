package main

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// schema is what the handler writes to. Nothing in postings and notices is unique: were an order posted twice, two rows would
// say so. seq is the order in which postings were made.
const schema = `
select pg_advisory_xact_lock(hashtext('headrace demo'));
create table if not exists accounts (topic text, id int, balance bigint not null default 0, primary key (topic, id));
create table if not exists postings (
	seq bigint generated always as identity, topic text not null, order_id text not null, account int not null, amount bigint not null, charge_id uuid not null
);
create table if not exists notices (
	topic text not null, charge_id uuid not null, order_id text not null, account int not null, amount bigint not null, language text not null, degraded text
)`

const openAccounts = `insert into accounts (topic, id) select $1, generate_series(0, $2) on conflict do nothing`

// prepare makes tables and accounts; any number of processes may do so at once.
func prepare(ctx context.Context, db *pgxpool.Pool, topic string) error {
	if _, err := db.Exec(ctx, schema); err != nil {
		return err
	}
	_, err := db.Exec(ctx, openAccounts, topic, accounts-1)
	return err
}

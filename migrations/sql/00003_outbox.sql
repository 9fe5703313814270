-- +goose Up

-- What handlers have published, in the transactions of their effects, until a forwarder's sends are confirmed. No index but
-- the key: rows are read in the order of their ids from the first one, and deleted by them. It is a queue, so nearly all
-- versions are dead soon: it is vacuumed by their number and not by their share.
create table headrace.outbox (
    id         bigint      generated always as identity primary key,
    topic      text        not null,
    key        bytea,
    value      bytea,
    -- names and values, each behind its length; without the message's id
    headers    bytea       not null default '',
    message_id text        not null,
    -- of the record on the wire, uncompressed
    bytes      int         not null,
    created_at timestamptz not null default now()
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 1000000);

comment on table headrace.outbox is 'events published in the transactions of their effects, until they are confirmed by the brokers';

-- Which forwarder sends. Two at once lose nothing and keep the order, they only send twice: so this may be lost.
create table headrace.outbox_lease (
    one     boolean     primary key default true check (one),
    holder  uuid        not null,
    expires timestamptz not null
);

comment on table headrace.outbox_lease is 'the forwarder whose turn it is to send';

-- +goose Down
drop table headrace.outbox_lease;
drop table headrace.outbox;

-- +goose Up

-- Records that are tried again much later. A route's parked records of one key stand in one line, in the order of their
-- offsets; only the first of them, the head, is tried, and while the line is there, later records of the key join it.

-- One row a line: narrow, because claims and the look "is this key parked?" read nothing else. No foreign key, for the
-- same reason that the inbox has none.
create table headrace.parked_keys (
    consumer_id int         not null,
    -- 64 bits of a hash of topic id, partition and key, or of the coordinates of a record that depends on no other.
    -- Two keys with the same bits wait for each other, and nothing worse.
    key_id      bigint      not null,
    -- when the head is to be tried; while somebody works on the line, when their lease ends; infinity: held
    due         timestamptz not null,
    -- who works on it, 0 for nobody. Every change of the line says whose lease it has.
    token       bigint      not null default 0,
    -- how often the head has failed
    round       smallint    not null default 0,
    -- claims of the line that did not come back
    starts      smallint    not null default 0,
    -- since when the head is parked
    since       timestamptz not null default now(),
    primary key (consumer_id, key_id)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);

create index parked_keys_due on headrace.parked_keys (consumer_id, due);
create index parked_keys_since on headrace.parked_keys (consumer_id, since);

comment on table headrace.parked_keys is 'keys whose records wait in headrace.parked_records, and when each is tried again';

-- One row a record. It is inserted and deleted; only the history of a head that fails again is updated.
create table headrace.parked_records (
    consumer_id int         not null,
    key_id      bigint      not null,
    topic_id    uuid        not null,
    part        int         not null,
    off         bigint      not null,
    -- the identity as the inbox stores it
    message_id  uuid        not null,
    parked_at   timestamptz not null default now(),
    -- the record, whole
    envelope    bytea       not null,
    -- what each of its rounds ended with, null for one that has not been tried
    history     bytea,
    primary key (consumer_id, key_id, topic_id, part, off)
) with (autovacuum_vacuum_scale_factor = 0.02);

comment on table headrace.parked_records is 'records that wait to be tried again, each as it was delivered';

-- How many records a route has parked, in slots that are summed up: a limit must not cost a scan, nor one row that every
-- transaction waits for.
create table headrace.parked_counts (
    consumer_id int      not null,
    slot        smallint not null,
    records     bigint   not null,
    primary key (consumer_id, slot)
) with (fillfactor = 10);

comment on table headrace.parked_counts is 'how many records each route has parked: the sum over its slots';

-- The tokens of leases.
create sequence headrace.parking_tokens;

-- +goose Down
drop sequence headrace.parking_tokens;
drop table headrace.parked_counts;
drop table headrace.parked_records;
drop table headrace.parked_keys;

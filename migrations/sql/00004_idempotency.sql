-- +goose Up

-- One row an Idempotency-Key of a service that uses package idempotency. The key with its scope is the primary key, in
-- bytes' order: it is looked up and never sorted. idempotency.Schema makes the same table under another name.
create table headrace.idempotency (
    route       text collate "C" not null,
    method      text collate "C" not null,
    principal   text collate "C" not null,
    key         text collate "C" not null,
    -- of path, query and body: the same key with another one was reused
    fingerprint bytea       not null,
    -- whose run it is: whoever resolves a key takes its token away
    token       uuid        not null,
    -- the answer; null while it runs outside of our transaction, and after that until somebody knows what became of it
    status      smallint,
    header      bytea,
    body        bytea,
    -- why nobody knows what became of it
    note        text,
    started_at  timestamptz not null default statement_timestamp(),
    -- from then on it is unknown; null when it is finished
    deadline    timestamptz,
    finished_at timestamptz,
    primary key (route, method, principal, key)
);
-- for the sweep
create index idempotency_finished_at on headrace.idempotency (finished_at) where finished_at is not null;
-- for the operator: of what is finished it has nothing
create index idempotency_deadline on headrace.idempotency (deadline) where status is null;

comment on table headrace.idempotency is 'what each Idempotency-Key was answered; status null and deadline past: nobody knows whether it was done';

-- +goose Down
drop table headrace.idempotency;

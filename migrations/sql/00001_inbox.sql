-- +goose Up

-- One row a route: the inbox stores four bytes instead of two names. A route that is renamed is another consumer, with
-- an empty memory: that is why a route's name is permanent.
create table headrace.consumers (
    id             int generated always as identity primary key,
    consumer_group text        not null,
    route          text        not null,
    created_at     timestamptz not null default now(),
    -- where the retention sweep stands: it is shared by all processes, so that ten of them do one pass between them
    sweep_page     bigint      not null default 0,
    swept_at       timestamptz,
    unique (consumer_group, route)
);

comment on table headrace.consumers is 'the routes that the inbox knows; never delete a row that inbox rows refer to';

-- One row a record and route. No foreign key: it would lock the consumer's row once for every insert. No further index:
-- the sweep reads by ctid. State: 0 effected, 1 skipped, 2 dead, 3 moved.
create table headrace.inbox (
    message_id  uuid        not null,
    consumer_id int         not null,
    state       smallint    not null default 0,
    -- of the record's value: the same id with another hash is a conflict, not a duplicate
    value_hash  bigint      not null,
    -- of topic id, partition and offset: the same id at the same place is this very record, seen again
    coordinates bigint      not null,
    created_at  timestamptz not null default now(),
    -- the coordinates of the record that died first, kept when a replay takes the row over
    original    bigint,
    reason      text,
    error       text,
    primary key (consumer_id, message_id)
);

comment on table headrace.inbox is 'what each route has dealt with: 0 effected, 1 skipped, 2 dead (a dead letter was or will be produced), 3 moved (it died under its place and was dealt with under another id)';

-- How often a partition's claim has started at the same offset: a record that takes its process down each time is found
-- by it. From the third start on, records run one at a time, each marked before it runs.
create table headrace.claim_starts (
    consumer_id int         not null,
    topic_id    uuid        not null,
    part        int         not null,
    off         bigint      not null,
    -- the process whose claim it is, null once it has given the claim up in order
    holder      uuid,
    -- starts that found a holder: it did not live to give the claim up
    deaths      int         not null default 0,
    -- the record that runs, and which process runs it
    marked      bigint,
    marked_by   uuid,
    marked_at   timestamptz,
    -- the mark that stood when a claim started: its process did not live to take it off
    killer      bigint,
    -- how many times in a row it was this record's
    kills       int         not null default 0,
    killed      uuid,
    killed_at   timestamptz,
    primary key (consumer_id, topic_id, part)
);

comment on table headrace.claim_starts is 'deaths of claims at an unmoved offset, and the record that runs alone';

-- +goose StatementBegin
-- Which of these ids are being inserted by another transaction at this moment? Each insert has a sub-transaction of its
-- own, so that one that must wait costs a millisecond and not the others. The caller rolls back what it inserts.
create function headrace.inbox_busy(consumer int, ids uuid[], at_most int) returns setof uuid
language plpgsql as $$
declare
    found int := 0;
    id    uuid;
begin
    perform set_config('lock_timeout', '1ms', true);
    foreach id in array ids loop
        begin
            insert into headrace.inbox (consumer_id, message_id, value_hash, coordinates)
            values (consumer, id, 0, 0) on conflict do nothing;
        exception when lock_not_available then
            return next id;
            found := found + 1;
            exit when found >= at_most;
        end;
    end loop;
end
$$;
-- +goose StatementEnd

-- +goose Down
drop function headrace.inbox_busy(int, uuid[], int);
drop table headrace.claim_starts;
drop table headrace.inbox;
drop table headrace.consumers;

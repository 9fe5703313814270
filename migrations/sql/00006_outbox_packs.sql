-- +goose Up

-- Events that a transaction publishes to one topic are packed into one row, as many as a page holds: written, read, deleted and
-- vacuumed they cost a fraction of a row each. A row takes as many ids as it may hold events, so that a pack can be taken
-- apart in its place.
alter table headrace.outbox
    alter column id set increment by 1024,
    alter column message_id set default '',
    add column events int not null default 1 check (events between 1 and 1024),
    -- of more than one event: one behind the other, the columns key, value, headers and message_id are of none
    add column packed bytea,
    add check ((events > 1) = (packed is not null));

-- A pack is as large as a page and stays in it. What is larger is not compressed: events are seldom worth it, and soon gone.
alter table headrace.outbox alter column packed set storage external, alter column value set storage external;
alter table headrace.outbox set (toast_tuple_target = 8160);

-- +goose Down

-- +goose StatementBegin
do $$ begin
    if exists (select from headrace.outbox where events > 1) then
        raise exception 'the outbox holds packed events, which the version before cannot send: let it drain first';
    end if;
end $$;
-- +goose StatementEnd
alter table headrace.outbox reset (toast_tuple_target);
alter table headrace.outbox alter column value set storage extended;
alter table headrace.outbox
    drop column packed, drop column events,
    alter column message_id drop default,
    alter column id set increment by 1;

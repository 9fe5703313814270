-- +goose Up

-- Records that run alone, each marked while it does, and how many processes have died in each. What was counted before
-- begins anew.
create table headrace.suspects (
    consumer_id int         not null,
    topic_id    uuid        not null,
    part        int         not null,
    off         bigint      not null,
    -- the process that runs it, null while none does
    marked_by   uuid,
    marked_at   timestamptz,
    -- a handler that may end the process as well is stuck in it: should it die, that proves nothing
    beside      boolean     not null default false,
    -- how many times in a row a process has died that ran it and nothing else
    kills       int         not null default 0,
    -- the last one that has died while it ran it, proof or not
    killed_by   uuid,
    killed_at   timestamptz,
    primary key (consumer_id, topic_id, part, off)
);

comment on table headrace.suspects is 'records that run alone, and how many processes have died in each';

-- Its other columns were the marks of builds before this one, which may run beside it while they are replaced.
comment on table headrace.claim_starts is 'deaths of claims at an unmoved offset; killer, marked and what belongs to them are unused';

-- +goose Down
comment on table headrace.claim_starts is 'deaths of claims at an unmoved offset, and the record that runs alone';
drop table headrace.suspects;

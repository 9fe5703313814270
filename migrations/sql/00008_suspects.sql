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

alter table headrace.claim_starts
    drop column marked, drop column marked_by, drop column marked_at,
    drop column killer, drop column kills, drop column killed, drop column killed_at;

comment on table headrace.claim_starts is 'deaths of claims at an unmoved offset';

-- +goose Down
alter table headrace.claim_starts
    add column marked bigint, add column marked_by uuid, add column marked_at timestamptz,
    add column killer bigint, add column kills int not null default 0, add column killed uuid, add column killed_at timestamptz;
comment on table headrace.claim_starts is 'deaths of claims at an unmoved offset, and the record that runs alone';
drop table headrace.suspects;

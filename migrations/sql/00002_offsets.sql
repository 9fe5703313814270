-- +goose Up

-- Which memory the route has, for good: the two do not know each other's records. 0 inbox, 1 offset store.
alter table headrace.consumers add column store smallint not null default 0;

-- One row a partition of a route of the offset store: which offsets are done. It is updated by every group, so its page
-- has room for versions that no index knows of (HOT).
create table headrace.offsets (
    consumer_id  int         not null,
    topic_id     uuid        not null,
    part         int         not null,
    -- everything below is done; at or above it, what done says
    low          bigint      not null default 0,
    done         bytea       not null default '',
    -- dead, and not done: the letter may not be written yet
    graves       bytea       not null default '',
    -- who may write: each claim takes the next one, and the one before is fenced off
    epoch        bigint      not null default 1,
    -- of the record before low, -1 where nobody knows
    leader_epoch int         not null default -1,
    acquired_at  timestamptz not null default now(),
    primary key (consumer_id, topic_id, part)
) with (fillfactor = 20);

comment on table headrace.offsets is 'what each route of the offset store has dealt with: everything below low, and what done says';

-- +goose StatementBegin
-- Notes what is done in a transaction, as its last statement before COMMIT. A partition that another claim has acquired
-- raises HR001, and nothing of the transaction stands. One by one, so that two transactions lock what they share in one
-- order, the callers'.
create function headrace.mark_offsets(
    consumer int, topics uuid[], parts int[], epochs bigint[], lows bigint[], dones text[], buried text[], leaders int[]
) returns void language plpgsql as $$
begin
    for i in 1 .. cardinality(topics) loop
        update headrace.offsets set
            low = lows[i], done = decode(dones[i], 'hex'), graves = decode(buried[i], 'hex'), leader_epoch = leaders[i]
        where consumer_id = consumer and topic_id = topics[i] and part = parts[i] and epoch = epochs[i];
        if not found then
            raise exception 'partition % of topic % was acquired by another claim', parts[i], topics[i]
                using errcode = 'HR001';
        end if;
    end loop;
end
$$;
-- +goose StatementEnd

-- +goose Down
drop function headrace.mark_offsets(int, uuid[], int[], bigint[], bigint[], text[], text[], int[]);
drop table headrace.offsets;
alter table headrace.consumers drop column store;

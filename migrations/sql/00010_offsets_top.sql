-- +goose Up

-- A record that is done or dead, and the epoch of the leader that wrote it, as far up in the log as one is known (-1: none).
-- Epochs only grow along a log: a record at or below that offset of a later leader is another one than was there. What a build
-- before this one marks beyond it leaves it true.
alter table headrace.offsets
    add column top       bigint not null default -1,
    add column top_epoch int    not null default -1;

-- +goose StatementBegin
-- The one of eight arguments stays, for builds before this one that still run.
create function headrace.mark_offsets(
    consumer int, topics uuid[], parts int[], epochs bigint[], lows bigint[], dones text[], buried text[], leaders int[],
    tops bigint[], top_epochs int[]
) returns void language plpgsql as $$
begin
    for i in 1 .. cardinality(topics) loop
        update headrace.offsets set
            low = lows[i], done = decode(dones[i], 'hex'), graves = decode(buried[i], 'hex'), leader_epoch = leaders[i],
            top = tops[i], top_epoch = top_epochs[i]
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
drop function headrace.mark_offsets(int, uuid[], int[], bigint[], bigint[], text[], text[], int[], bigint[], int[]);
alter table headrace.offsets drop column top, drop column top_epoch;

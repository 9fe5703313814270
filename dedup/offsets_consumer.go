package dedup

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/record"
)

// byOffset says that r is one that an offset store knows by its offset: of a replay the inbox's row tells.
func (c *Consumer) byOffset(r *record.Record) bool { return c.store == ByOffset && !r.Replay }

// columns are of what the inbox's rows know r by.
func (c *Consumer) columns(r *record.Record) *columns {
	b := newBurial(r, Grave{}, c.store == ByOffset)
	return columnsOf([]*burial{b})
}

// isDone looks at the partition's row, without acquiring it.
func (c *Consumer) isDone(ctx context.Context, conn *pgx.Conn, r *record.Record) (bool, error) {
	_, row, err := readOffsets(ctx, conn, c.id, partition{r.TopicID, r.Partition}, "")
	return r.Offset < row.low || row.done.has(r.Offset), err
}

const openRowSQL = `insert into headrace.offsets (consumer_id, topic_id, part, epoch) values ($1::int, $2::text::uuid, $3::int, 1)
on conflict do nothing`

const fenceSQL = `update headrace.offsets set epoch = epoch + 1
where consumer_id = $1::int and topic_id = $2::text::uuid and part = $3::int returning epoch`

// dig puts r into the graves of its partition's row, in the transaction that has written its dead row. It bumps the epoch,
// as a claim that acquires the partition does: what a member has in hand at this moment is rolled back and run again, but
// for r, which it then knows to be dead. It is false when r is done already: then nothing must be committed.
func (c *Consumer) dig(ctx context.Context, conn *pgx.Conn, r *record.Record) (bool, error) {
	at := partition{r.TopicID, r.Partition}
	if _, err := conn.Exec(ctx, openRowSQL, c.id, at.topic.String(), at.n); err != nil {
		return false, err
	}
	epoch, row, err := readOffsets(ctx, conn, c.id, at, "for update")
	if err != nil {
		return false, err
	}
	if r.Offset < row.low || row.done.has(r.Offset) {
		return false, nil
	}
	if err := conn.QueryRow(ctx, fenceSQL, c.id, at.topic.String(), at.n).Scan(&epoch); err != nil {
		return false, err
	}
	m := mark{
		lease: lease{&image{at: at}, epoch}, low: row.low, done: row.done, leaders: newLeaders(row.low, row.low, row.leader),
		graves: row.graves.add(run{r.Offset, r.Offset + 1}), tops: tops(nil).note(row.top.offset, row.top.epoch),
	}
	var args markArgs
	args.add(&m)
	if _, err := conn.Exec(ctx, markOffsetsSQL, args.values(c.id)...); err != nil {
		return false, fmt.Errorf("note it in the offset store: %w", err)
	}
	return true, nil
}

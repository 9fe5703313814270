package dedup

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Low is where a partition's offsets are done without a gap.
type Low struct {
	// Offset: everything below it is done. A claim that begins to read here misses nothing.
	Offset int64
	// LeaderEpoch is of the record before Offset, -1 if nobody knows.
	LeaderEpoch int32
	// End is behind the last record that is done or dead: a log that ends before it has lost some.
	End int64
}

const lowsSQL = `select part, epoch, low, done, graves, leader_epoch, top, top_epoch from headrace.offsets
where consumer_id = $1::int and topic_id = $2::text::uuid and part = any($3::int[])`

// Lows says how far the offset store is with partitions of a topic, at this moment: it acquires nothing, so that whoever
// owns them is not disturbed. A partition that it knows nothing of, or whose row cannot be read, is not in the answer; of an
// inbox route it is empty.
func (rt *Route) Lows(ctx context.Context, topicID uuid.UUID, partitions []int32) (map[int32]Low, error) {
	lows := make(map[int32]Low, len(partitions))
	if rt.cfg.Store != ByOffset || len(partitions) == 0 {
		return lows, nil
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	rows, err := rt.in.pool.Query(ctx, lowsSQL, rt.consumer, topicID.String(), partitions)
	if err != nil {
		return nil, fmt.Errorf("look at the offset store: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		r := partRow{Row: rows}
		switch _, s, err := scanOffsets(&r); {
		case errors.Is(err, errOffsets): // its records are held
		case err != nil:
			return nil, fmt.Errorf("look at the offset store: %w", err)
		default:
			lows[r.part] = Low{Offset: s.low, LeaderEpoch: s.leader, End: max(s.done.end(s.low), s.graves.end(s.low))}
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("look at the offset store: %w", err)
	}
	return lows, nil
}

// partRow is a row whose first column is the partition.
type partRow struct {
	pgx.Row

	part int32
}

// Scan implements pgx.Row.
func (r *partRow) Scan(dest ...any) error { return r.Row.Scan(append([]any{&r.part}, dest...)...) }

// Store is the route's.
func (rt *Route) Store() Store { return rt.cfg.Store }

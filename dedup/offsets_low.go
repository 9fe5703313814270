package dedup

import (
	"context"
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
}

const lowsSQL = `select part, low, leader_epoch from headrace.offsets
where consumer_id = $1::int and topic_id = $2::text::uuid and part = any($3::int[])`

// Lows says how far the offset store is with partitions of a topic, at this moment: it acquires nothing, so that whoever
// owns them is not disturbed. A partition that it knows nothing of is not in the answer; of an inbox route it is empty.
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
	var part int32
	var low Low
	_, err = pgx.ForEachRow(rows, []any{&part, &low.Offset, &low.LeaderEpoch}, func() error {
		lows[part] = low
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look at the offset store: %w", err)
	}
	return lows, nil
}

// Store is the route's.
func (rt *Route) Store() Store { return rt.cfg.Store }

package parking

import (
	"context"
	"fmt"
	"time"
)

// Stats is what a route has parked, at one moment.
type Stats struct {
	// Records are parked, heads and those behind them.
	Records int64
	// Oldest is for how long the oldest head is parked, 0 if there is none.
	Oldest time.Duration
	// Lag is for how long the first line is due that nobody has claimed, 0 if none is.
	Lag time.Duration
}

// Stats asks the database, without a scan.
func (s *Store) Stats(ctx context.Context) (st Stats, err error) {
	var oldest, lag int64
	if err := s.pool.QueryRow(ctx, s.sql.stats, s.consumer).Scan(&st.Records, &oldest, &lag); err != nil {
		return Stats{}, fmt.Errorf("ask what is parked: %w", err)
	}
	st.Oldest, st.Lag = time.Duration(oldest)*time.Millisecond, time.Duration(lag)*time.Millisecond
	return st, nil
}

// Retry makes a key due now, also one that is held. It is false for a key that is not parked, or that somebody works on.
func (s *Store) Retry(ctx context.Context, key int64) (bool, error) {
	tag, err := s.pool.Exec(ctx, s.sql.retry, s.consumer, key)
	if err != nil {
		return false, fmt.Errorf("make a parked key due: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}

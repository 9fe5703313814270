package idempotency

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Stats is what the table has of a route's keys that are not finished, in this and all other processes. A key in Tx mode
// has no row before it is finished.
type Stats struct {
	Route string
	// Running keys are in progress, of External.
	Running int64
	// Unknown keys wait for Reconcile or an operator.
	Unknown int64
	// Oldest is for how long the first of these has been unknown; 0 if there is none.
	Oldest time.Duration
}

// Stats asks the database, without a scan of what is finished. It has each route of this process, and others that have
// unfinished keys, by name.
func (k *Keys) Stats(ctx context.Context) ([]Stats, error) {
	rows, err := k.pool.Query(ctx, k.sql.stats)
	if err != nil {
		return nil, fmt.Errorf("idempotency: ask what is not finished: %w", err)
	}
	found := k.emptyStats()
	var s Stats
	var oldest int64 // ms
	_, err = pgx.ForEachRow(rows, []any{&s.Route, &s.Running, &s.Unknown, &oldest}, func() error {
		s.Oldest = time.Duration(oldest) * time.Millisecond
		found[s.Route] = s
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("idempotency: ask what is not finished: %w", err)
	}
	all := make([]Stats, 0, len(found))
	for _, route := range slices.Sorted(maps.Keys(found)) {
		all = append(all, found[route])
	}
	return all, nil
}

func (k *Keys) emptyStats() map[string]Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	empty := make(map[string]Stats, len(k.routes))
	for route := range k.routes {
		empty[route] = Stats{Route: route}
	}
	return empty
}

package consumer

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

func TestFlood(t *testing.T) {
	t.Parallel()
	const (
		partitions = 4 // of a bed
		run        = 3
		records    = 200
	)
	// failing starts a route on which everything fails until it is healed, and waits until all that may die is dead.
	failing := func(t *testing.T) (b *bed, guard *middleware.FloodGuard, healed *atomic.Bool) {
		b, healed = newBed(t), &atomic.Bool{}
		guard = middleware.NewFloodGuard(middleware.FloodConfig{Run: run, Probe: 20 * time.Millisecond})
		route := Route[item]{Name: "post", Topic: "orders", Apply: func(ctx context.Context, tx pgx.Tx, e Event[item]) error {
			if !healed.Load() {
				return errors.New("a bad deploy")
			}
			return effect(ctx, tx, "post", e.Data)
		}}
		route.Flood = guard
		b.produce(items("ok", records)...)
		r := b.start(b.config(), route)
		const all = `headrace_holding{dependency="flood-guard",route="post"} 188` + "\n"
		require.Eventually(t, func() bool { return strings.Contains(scrape(t, r.c.cfg.Registry), all) }, patience, 5*time.Millisecond)
		require.Len(t, guard.Refusing(), partitions)
		b.eventually("what may die has its letters", func() bool { return b.length("orders.dlq") == partitions*run })
		return b, guard, healed
	}

	t.Run("ABadDeployHoldsItsPartitionsUntilItIsRolledBack", func(t *testing.T) {
		t.Parallel()
		b, _, healed := failing(t)
		healed.Store(true)
		require.Equal(t, map[record.Outcome]int{record.Dead: partitions * run, record.Effected: records - partitions*run}, b.outcomes(records))
		require.EqualValues(t, partitions*run, b.length("orders.dlq"))
	})

	t.Run("AnOperatorReleasesWhatIsAsBadAsItLooks", func(t *testing.T) {
		t.Parallel()
		b, guard, _ := failing(t)
		require.Len(t, b.outcomes(partitions*run), 1)
		for p := range guard.Refusing() {
			guard.Release(p)
		}
		require.Equal(t, map[record.Outcome]int{record.Dead: partitions * run}, b.outcomes(partitions*run), "as many again")
	})
}

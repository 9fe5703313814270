package dedup

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/record"
)

// TestTurnsAndConnections: a group has its connection when it comes to wait for a turn.
func TestTurnsAndConnections(t *testing.T) {
	t.Parallel()

	// A group's COMMIT takes longer than the end of a claim may: it is told all the same, and what drains loses nothing.
	t.Run("EndOfAClaimThatWaitsForACommitIsToldAndLosesNoGroup", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, byOffset), newOwner()
		require.NoError(t, b.rt.Claimed(t.Context(), topicID, 0, 0))
		dead := rec(o, 0, "")
		require.Equal(t, Buried, b.bury(dead, "permanent"))
		dead.Settle(record.Dead)
		rs := []*record.Record{rec(o, 1, ""), rec(o, 2, "")}
		goOn, done := b.paused(rs)
		x := b.rt.offsets.image(partition{topicID, 0})
		x.turn <- struct{}{} // another group's COMMIT is under way
		answered := sync.OnceFunc(func() {
			<-x.turn
			close(goOn)
		})
		defer answered()
		close(o.soft)
		finishes(t, func() {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			require.NoError(t, b.rt.Released(ctx, topicID, 0))
		})
		require.Equal(t, 1, query[int](b, "select count(*) from headrace.claim_starts where holder is null"))
		answered()
		await(t, done)
		requireOutcomes(t, record.Effected, rs...)
		require.Zero(t, b.counted(b.groups, "rolled_back"))
	})

	t.Run("EndOfAClaimWithoutAConnectionLosesNoGroup", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{cfg: Config{MaxConns: 2}, route: byOffset.route}), newOwner()
		dead := rec(o, 0, "")
		require.Equal(t, Buried, b.bury(dead, "permanent"))
		dead.Settle(record.Dead)
		goOn, done := b.paused([]*record.Record{rec(o, 1, "")})
		other, err := b.in.pool.Acquire(t.Context())
		require.NoError(t, err)
		close(o.soft)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, b.rt.Released(ctx, topicID, 0), context.DeadlineExceeded)
		other.Release()
		close(goOn)
		await(t, done)
		b.beside(1)
		b.requireLedger(1)
		require.Zero(t, b.counted(b.groups, "rolled_back"))
	})
}

package dedup

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/backoff"
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

	t.Run("GroupsThatHaveAllConnectionsDoNotWaitForWhoWaitsForOne", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{cfg: Config{MaxConns: 2}, route: RouteConfig{Store: ByOffset, Writers: 2}}), newOwner()
		dead := rec(o, 0, "")
		require.Equal(t, Buried, b.bury(dead, "permanent"))
		dead.Settle(record.Dead)
		first, second := []*record.Record{rec(o, 1, "")}, []*record.Record{rec(o, 2, "")}
		var goOn, done [2]chan struct{}
		goOn[0], done[0] = b.paused(first)
		goOn[1], done[1] = b.paused(second)
		x := b.rt.offsets.image(partition{topicID, 0})
		var flush sync.WaitGroup
		flush.Go(func() { b.rt.offsets.flush(context.Background(), x) })
		for i := 0; i < 100 && len(x.turn) == 0; i++ { // it has none, for which there is no signal
			backoff.Wait(t.Context(), time.Millisecond)
		}
		for i := range goOn {
			close(goOn[i])
		}
		for i := range done {
			await(t, done[i])
		}
		finishes(t, flush.Wait)
		requireOutcomes(t, record.Effected, append(first, second...)...)
		require.Zero(t, b.counted(b.groups, "rolled_back"))
		require.Equal(t, storedOffsets{low: 3, leader: 1}, b.stored())
	})

	t.Run("ClaimThatWaitsForAConnectionHasNoTurn", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{cfg: Config{MaxConns: 2}, route: byOffset.route}), newOwner()
		goOn, done := b.paused([]*record.Record{rec(o, 1, "")})
		other, err := b.in.pool.Acquire(t.Context())
		require.NoError(t, err)
		late := newOwner() // a claim of the same partition, before the group of the one before has ended
		var all sync.WaitGroup
		all.Go(func() { b.run([]*record.Record{rec(late, 2, "")}, effect) })
		x := b.rt.offsets.image(partition{topicID, 0})
		for i := 0; i < 100 && len(x.turn) == 0; i++ {
			backoff.Wait(t.Context(), time.Millisecond)
		}
		close(goOn)
		await(t, done)
		other.Release()
		finishes(t, all.Wait)
		require.Equal(t, 2, query[int](b, "select count(*) from eff"))
		require.Zero(t, b.counted(b.groups, "rolled_back"))
	})
}

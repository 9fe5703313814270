package e2e

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/record"
)

// claims collects what happens to partitions. Safe for concurrent use.
type claims struct{ events chan record.ClaimInfo }

func watched() (*claims, *record.Hooks) {
	c := &claims{events: make(chan record.ClaimInfo, 1000)}
	return c, &record.Hooks{OnClaim: func(i record.ClaimInfo) { c.events <- i }}
}

// next waits for an event of this kind and gives its partition.
func (c *claims) next(t *testing.T, event string) int32 {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case i := <-c.events:
			if i.Event == event {
				return i.Partition
			}
		case <-deadline:
			require.FailNow(t, "no partition was "+event)
		}
	}
}

// perPartition is a record for each of the world's partitions.
func (w *world) perPartition(n int, o order) []*kgo.Record {
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = w.record("", o)
		rs[i].Partition = int32(i)
	}
	return rs
}

func contextOutlivesClaim(t *testing.T) {
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 2)
	s := w.setup()
	s.DrainGrace = time.Second
	s.Options.AttemptTimeout, s.Options.MaxBatch = time.Minute, 1 // a transaction each
	entered, causes := make(chan struct{}, 10), make(chan error, 10)
	first := w.run(s, nil, s.route("post", func(ctx context.Context, _ pgx.Tx, _ consumer.Event[order]) error {
		entered <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}))
	w.produce(w.perPartition(2, order{})...)
	<-entered
	<-entered
	second := w.start(s)
	require.ErrorIs(t, <-causes, record.ErrRevoked, "one partition goes to the other, and its handler hears of it")
	w.past(0)
	first.quit()
	w.drained()
	second.quit()
	require.Equal(t, tally{Records: 2, Effected: 2}, w.one())
}

// The first member's handler ignores the end of its context -> the partition goes to the second, whose handler runs on
// the same record at the same time -> the first one's handler returns and says that all is well.
func twiceAtOnce(t *testing.T) {
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	s := w.setup()
	s.DrainGrace = 500 * time.Millisecond
	s.Tune = func(c *consumer.Config) { c.HardGrace = 500 * time.Millisecond }
	s.Options.AttemptTimeout = time.Second
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	t.Cleanup(func() { close(leave) })
	returned := make(chan error, 1)
	first := w.run(s, nil, s.route("post", func(_ context.Context, tx pgx.Tx, e consumer.Event[order]) error {
		entered <- struct{}{}
		<-leave
		err := write(context.Background(), tx, "post", e)
		returned <- err
		return nil
	}))
	w.produce(w.record("a", order{}))
	<-entered
	first.stop() // it leaves the group without its handler
	second := w.start(s)
	w.past(0) // the second's effect, while the first is still in its handler
	leave <- struct{}{}
	require.Error(t, <-returned, "the transaction of the first is gone")
	require.NoError(t, first.ended())
	w.drained()
	second.quit()
	require.Equal(t, tally{Records: 1, Effected: 1}, w.one())
}

// The handler returns while its partition is being revoked.
func ackDuringRebalance(t *testing.T) {
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 2)
	s := w.setup()
	s.Options.AttemptTimeout, s.Options.MaxBatch = time.Minute, 1 // a transaction each
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	first := w.run(s, nil, s.route("post", func(ctx context.Context, tx pgx.Tx, e consumer.Event[order]) error {
		entered <- struct{}{}
		select {
		case <-leave:
		case <-ctx.Done():
			return ctx.Err()
		}
		return write(ctx, tx, "post", e)
	}))
	w.produce(w.perPartition(2, order{})...)
	<-entered
	<-entered
	var met answers
	second := w.run(s, met.hooks(), s.scripted()...)
	w.eventually("a rebalance has begun", func() bool { return w.state() == "PreparingRebalance" })
	close(leave)
	w.drained()
	first.quit()
	second.quit()
	require.Equal(t, tally{Records: 2, Effected: 2}, w.one())
	require.Zero(t, met.own.Load()+met.fresh.Load(), "what was acknowledged in the rebalance was delivered again")
}

// state is what the coordinator says of the group.
func (w *world) state() string {
	w.t.Helper()
	groups, err := w.admin.DescribeGroups(w.t.Context(), w.group)
	require.NoError(w.t, err)
	return groups[w.group].State
}

func nackLoop(t *testing.T) {
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 2)
	s := w.setup()
	s.Options.AttemptTimeout, s.Options.Attempts = time.Second, 200
	s.Options.BackoffBase, s.Options.BackoffCap = 200*time.Millisecond, 200*time.Millisecond
	var tried [2]atomic.Int64
	seen, hooks := watched()
	first := w.run(s, hooks, s.route("post", func(_ context.Context, _ pgx.Tx, e consumer.Event[order]) error {
		tried[e.Partition].Add(1)
		return fault.RetryAfter(errors.New("not now"), time.Millisecond)
	}))
	w.produce(w.perPartition(2, order{})...)
	w.eventually("both are tried", func() bool { return tried[0].Load() > 0 && tried[1].Load() > 0 })
	second := w.start(s)
	gone := seen.next(t, "revoked")
	then := tried[gone].Load()
	w.past(0) // by the second
	w.drainedPartition(gone)
	require.Equal(t, then, tried[gone].Load(), "the first went on with a partition that it has no more")
	first.quit()
	w.drained()
	second.quit()
	require.Equal(t, tally{Records: 2, Effected: 2}, w.one())
}

// drainedPartition waits until the group has committed a partition of one record.
func (w *world) drainedPartition(partition int32) {
	w.t.Helper()
	w.eventually("the partition is committed", func() bool { return w.committed()[partition] == 1 })
}

package stock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/kafka/stock"
	"github.com/headrace/headrace/record"
)

// TestChurn lets members come, go and be slow while records come. What was settled is settled once: it was marked before
// its claim let go, and committed before the partition went to another.
func TestChurn(t *testing.T) {
	t.Parallel()
	brokers(t, func(t *testing.T, brokers []string) {
		const partitions, batches, batch = 4, 12, 20
		w := newWorld(t, brokers, partitions)
		c := &churn{t: t, settled: map[place]int{}}
		members := make([]*churnMember, 3)
		for i := range members {
			members[i] = c.join(w)
		}
		rnd := rand.New(rand.NewPCG(1, 2))
		for range batches {
			for p := range int32(partitions) {
				w.produce(p, batch)
			}
			i := rnd.IntN(len(members))
			members[i].leave()
			members[i] = c.join(w)
			<-time.After(time.Duration(rnd.IntN(400)) * time.Millisecond)
		}
		all := partitions * batches * batch
		w.eventually("everything is settled", func() bool { return c.count() == all })
		for _, m := range members {
			m.leave()
		}
		for at, n := range c.settled {
			require.Equal(t, 1, n, "%v was settled more than once; reports: %v", at, w.kinds())
		}
		for p := range int32(partitions) {
			require.EqualValues(t, batches*batch, w.committed()[p])
		}
	})
}

type place struct {
	partition int32
	offset    int64
}

type churn struct {
	t       *testing.T
	mu      sync.Mutex
	settled map[place]int
}

func (c *churn) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.settled)
}

type churnMember struct {
	s        *stock.Subscriber
	t        *testing.T
	handlers *sync.WaitGroup
}

func (m *churnMember) leave() {
	m.t.Helper()
	require.NoError(m.t, m.s.Stop(context.Background()))
	m.handlers.Wait()
}

func (c *churn) join(w *world) *churnMember {
	w.t.Helper()
	s := w.subscriber(graces(300*time.Millisecond, 300*time.Millisecond))
	return &churnMember{s: s, t: c.t, handlers: handle(w.messages(s), c.handle)}
}

// handle is slow at times, slower than the grace, and fails at times.
func (c *churn) handle(msg *message.Message) error {
	rs, err := record.Records(msg)
	if err != nil {
		return err
	}
	switch r := rs[0]; {
	case r.Offset%17 == 0:
		select {
		case <-time.After(time.Duration(rand.IntN(500)) * time.Millisecond):
		case <-msg.Context().Done():
			return context.Cause(msg.Context())
		}
	case r.Offset%23 == 0 && rand.IntN(2) == 0:
		return errors.New("not now")
	}
	if r := rs[0]; r.Settle(record.Effected) {
		c.mu.Lock()
		c.settled[place{r.Partition, r.Offset}]++
		c.mu.Unlock()
	}
	return nil
}

package kafka_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// churn is a group whose members come, go and rebalance while records are produced, and handlers of which one in a
// hundred is a straggler. Nothing may be missing, and no partition handled by two members. In order by partition nothing
// is effected twice either; in order by key, and with nacks, records that settled above one that still has its turn to
// come when the claim ends do come twice: that is what the inbox is for.
type churn struct {
	t        *testing.T
	client   kafka.ClientConfig
	topic    string
	parts    int32
	balancer kafka.Balancer
	rnd      *rand.Rand
	told     reports
	strict   bool // in order by partition, no nacks
	log      lockedBuffer

	mu       sync.Mutex
	owner    map[int32]*kafka.Source
	inside   map[int32]int
	effects  map[int32]map[int64]int
	overlaps int
	produced map[int32]int64
	members  []*kafka.Source
	changes  int
	handlers sync.WaitGroup
}

func newChurn(t *testing.T, client kafka.ClientConfig, topic string, parts int32, balancer kafka.Balancer, seed uint64) *churn {
	return &churn{
		t: t, client: client, topic: topic, parts: parts, balancer: balancer, rnd: rand.New(rand.NewPCG(seed, 0)),
		strict: seed%2 == 0,
		owner:  map[int32]*kafka.Source{}, inside: map[int32]int{},
		effects: map[int32]map[int64]int{}, produced: map[int32]int64{},
	}
}

// run churns for a while, lets the group come to rest and checks.
func (c *churn) run(d time.Duration) {
	producer, err := kgo.NewClient(append(c.client.Options(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	require.NoError(c.t, err)
	defer producer.Close()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		c.produce(producer, stop)
	}()
	c.join()
	for end := time.Now().Add(d); time.Now().Before(end); {
		wait(time.Duration(300+c.rnd.IntN(2700)) * time.Millisecond)
		c.change()
	}
	close(stop)
	<-stopped
	c.rest()
	for len(c.members) > 0 {
		c.leave(0)
	}
	c.handlers.Wait()
	c.check()
}

func (c *churn) produce(producer *kgo.Client, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(200 * time.Millisecond):
		}
		var rs []*kgo.Record
		for i := range 5 * c.parts {
			rs = append(rs, &kgo.Record{Topic: c.topic, Partition: i % c.parts, Key: []byte(fmt.Sprint(i / c.parts)), Value: []byte("v")})
		}
		if err := producer.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
			c.t.Errorf("produce: %v", err)
			return
		}
		c.mu.Lock()
		for _, r := range rs {
			c.produced[r.Partition]++
		}
		c.mu.Unlock()
	}
}

func (c *churn) change() {
	c.changes++
	switch n := len(c.members); {
	case n < 2, n < 4 && c.rnd.IntN(2) == 0:
		c.join()
	case c.rnd.IntN(3) == 0:
		c.members[0].ForceRebalance()
	default:
		c.leave(c.rnd.IntN(n))
	}
}

func (c *churn) join() {
	cfg := kafka.SourceConfig{
		Client: c.client, Group: c.topic + "-g", Topics: []string{c.topic}, Balancer: c.balancer, Logger: slog.New(slog.NewTextHandler(&c.log, nil)),
		SessionTimeout: 10 * time.Second, HeartbeatInterval: 500 * time.Millisecond, RebalanceTimeout: 30 * time.Second,
		DrainGrace: 8 * time.Second, HardGrace: 2 * time.Second,
	}
	c.told.hook(&cfg)
	s, err := kafka.NewSource(cfg)
	require.NoError(c.t, err)
	sub := kafka.Subscription{MaxBatch: 1 + c.rnd.IntN(10)}
	if c.strict {
		sub.Order = kafka.ByPartition
	}
	msgs, err := s.Subscriber(sub).Subscribe(context.Background(), c.topic)
	require.NoError(c.t, err)
	c.members = append(c.members, s)
	seed := c.rnd.Uint64()
	c.handlers.Go(func() {
		rnd := rand.New(rand.NewPCG(seed, 9))
		for msg := range msgs {
			took := time.Duration(rnd.IntN(2000)) * time.Microsecond
			if rnd.IntN(100) == 0 {
				took = 400 * time.Millisecond
			}
			nack := !c.strict && rnd.IntN(50) == 0
			c.handlers.Go(func() { c.handle(s, msg, took, nack) })
		}
	})
}

func (c *churn) handle(s *kafka.Source, msg *message.Message, took time.Duration, nack bool) {
	rs := records(msg)
	p := rs[0].Partition
	c.enter(s, p)
	select {
	case <-time.After(took):
	case <-msg.Context().Done():
		nack = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inside[p]--
	if nack {
		msg.Nack()
		return
	}
	for _, r := range rs {
		if c.effects[p] == nil {
			c.effects[p] = map[int64]int{}
		}
		c.effects[p][r.Offset]++
		r.Settle(record.Effected)
	}
	msg.Ack()
}

// enter counts a partition that two members handle at the same time.
func (c *churn) enter(s *kafka.Source, p int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inside[p] > 0 && c.owner[p] != s {
		c.overlaps++
	}
	c.owner[p] = s
	c.inside[p]++
}

func (c *churn) leave(i int) {
	s := c.members[i]
	c.members = append(c.members[:i], c.members[i+1:]...)
	began := time.Now()
	require.NoError(c.t, s.Close())
	require.Less(c.t, time.Since(began), 20*time.Second)
}

// rest waits until everything that was produced has had its effect.
func (c *churn) rest() {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); wait(200 * time.Millisecond) {
		if missing, _ := c.count(); missing == 0 {
			return
		}
	}
}

func (c *churn) count() (missing, twice int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, n := range c.produced {
		for o := range n {
			switch times := c.effects[p][o]; {
			case times == 0:
				missing++
			case times > 1:
				twice++
			}
		}
	}
	return missing, twice
}

func (c *churn) check() {
	missing, twice := c.count()
	if missing > 0 || twice > 0 && c.strict {
		c.t.Log(c.log.String())
	}
	total := int64(0)
	for _, n := range c.produced {
		total += n
	}
	c.t.Logf("%d records, %d changes, %d assigned, %d revoked, %d lost: %d missing, %d twice, %d overlaps",
		total, c.changes, c.told.events("assigned"), c.told.events("revoked"), c.told.events("lost"), missing, twice, c.overlaps)
	require.Zero(c.t, missing)
	require.True(c.t, twice == 0 || !c.strict)
	require.Zero(c.t, c.overlaps)
	require.Empty(c.t, c.told.all)
}

// lockedBuffer is a log that many members write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestSourceChurn churns in virtual time. HEADRACE_CHURN_SEEDS makes it run more seeds, for longer each.
func TestSourceChurn(t *testing.T) {
	t.Parallel()
	seeds, d := uint64(2), time.Minute
	if n, err := strconv.ParseUint(os.Getenv("HEADRACE_CHURN_SEEDS"), 10, 32); err == nil {
		seeds, d = n, time.Hour
	}
	for name, balancer := range map[string]kafka.Balancer{"Cooperative": kafka.Cooperative, "Eager": kafka.Eager, "ServerSide": kafka.ServerSide} {
		for seed := range seeds {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				virtual(t, 4, func(w *world) { newChurn(t, w.client(), "t", 4, balancer, seed).run(d) })
			})
		}
	}
}

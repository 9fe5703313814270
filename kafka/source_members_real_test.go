package kafka_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// realGroup is a consumer group of one topic on the real broker.
type realGroup struct {
	t            *testing.T
	brokers      []string
	topic, group string
	partitions   int32
	produced     int64 // to each partition
}

func newRealGroup(t *testing.T, partitions int32) *realGroup {
	t.Helper()
	t.Parallel()
	brokers := kafkatest.Real(t).Brokers()
	return &realGroup{t: t, brokers: brokers, topic: kafkatest.Topic(t, brokers, int(partitions)), group: kafkatest.Name(t), partitions: partitions}
}

// realMember is one of its members, and what its handlers saw.
type realMember struct {
	*seen

	s    *kafka.Source
	told *reports
	wg   *sync.WaitGroup
}

func (g *realGroup) join(change func(*kafka.SourceConfig)) *realMember {
	g.t.Helper()
	m := &realMember{seen: &seen{}, told: &reports{}}
	cfg := kafka.SourceConfig{
		Client: kafka.ClientConfig{Brokers: g.brokers, Logger: quiet()}, Group: g.group, Topics: []string{g.topic}, Logger: quiet(),
		CommitInterval: 100 * time.Millisecond,
	}
	change(&cfg)
	m.told.hook(&cfg)
	var err error
	m.s, err = kafka.NewSource(cfg)
	require.NoError(g.t, err)
	msgs, err := m.s.Subscribe(g.t.Context(), g.topic)
	require.NoError(g.t, err)
	m.wg = handle(msgs, func(msg *message.Message) error {
		m.add(records(msg)[0])
		return nil
	})
	return m
}

func (g *realGroup) leave(m *realMember) {
	g.t.Helper()
	require.NoError(g.t, m.s.Close())
	m.wg.Wait()
}

// produce appends n records to each partition.
func (g *realGroup) produce(n int64) {
	g.t.Helper()
	var rs []*kgo.Record
	for p := range g.partitions {
		for range n {
			rs = append(rs, &kgo.Record{Topic: g.topic, Partition: p, Value: []byte("v")})
		}
	}
	kafkatest.Produce(g.t, g.brokers, rs...)
	g.produced += n
}

// awaitCommitted returns when everything is committed but what is on a partition that nobody reads now.
func (g *realGroup) awaitCommitted(but ...int32) {
	g.t.Helper()
	g.eventually("everything is committed", func() bool {
		done := kafkatest.Committed(g.t, g.brokers, g.group, g.topic)
		for p := range g.partitions {
			if done[p] != g.produced && !slices.Contains(but, p) {
				return false
			}
		}
		return true
	})
}

func (g *realGroup) eventually(what string, f func() bool) {
	g.t.Helper()
	require.Eventually(g.t, f, 2*patience, 50*time.Millisecond, what)
}

// share waits until a member has n partitions, and gives one.
func (g *realGroup) share(m *realMember, n int) int32 {
	g.t.Helper()
	g.eventually("it has its share", func() bool { return len(m.s.Stats()) == n })
	return m.s.Stats()[0].Partition
}

// TestSourceOfAServerSideGroupOnARealBroker has a member come and go: each record is handled once, though partitions move.
func TestSourceOfAServerSideGroupOnARealBroker(t *testing.T) {
	g := newRealGroup(t, 4)
	serverSide := func(c *kafka.SourceConfig) { c.Balancer = kafka.ServerSide }
	first := g.join(serverSide)
	g.produce(10)
	g.awaitCommitted()
	second := g.join(serverSide)
	g.share(first, 2)
	g.share(second, 2)
	g.produce(10)
	g.awaitCommitted()
	g.leave(second)
	g.share(first, 4)
	g.produce(10)
	g.awaitCommitted()
	for p := range g.partitions {
		require.ElementsMatch(t, upTo(30), slices.Concat(first.at(g.topic, p), second.at(g.topic, p)), "partition %d", p)
	}
	require.Equal(t, 20, second.total(), "what came while it had half of the partitions")
	require.NoError(t, first.s.Ready())
	g.leave(first)
	require.Empty(t, first.told.all)
	require.Empty(t, second.told.all)
}

// TestSourceThatIsAStaticMemberOnARealBroker restarts one of two static members, and then starts it a second time.
func TestSourceThatIsAStaticMemberOnARealBroker(t *testing.T) {
	for name, c := range map[string]struct {
		balancer kafka.Balancer
		twin     func(t *testing.T, g *realGroup, first, twin *realMember)
	}{
		"Cooperative": {kafka.Cooperative, firstIsFenced},
		"ServerSide":  {kafka.ServerSide, twinIsKeptOut},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRealGroup(t, 2)
			static := func(id string) func(*kafka.SourceConfig) {
				return func(cfg *kafka.SourceConfig) { cfg.InstanceID, cfg.Balancer = id, c.balancer }
			}
			first, other := g.join(static("a")), g.join(static("b"))
			mine := g.share(first, 1)
			g.share(other, 1)
			g.produce(5)
			g.awaitCommitted()
			assigned, revoked := other.told.events("assigned"), other.told.events("revoked")

			g.leave(first)
			g.produce(5)
			g.awaitCommitted(mine)
			again := g.join(static("a"))
			g.awaitCommitted()
			require.Equal(t, mine, g.share(again, 1))
			require.ElementsMatch(t, upTo(5), first.at(g.topic, mine))
			require.ElementsMatch(t, from(5, 5), again.at(g.topic, mine))
			require.Equal(t, assigned, other.told.events("assigned"), "nobody rebalanced")
			require.Equal(t, revoked, other.told.events("revoked"))

			twin := g.join(static("a"))
			c.twin(t, g, again, twin)
			g.leave(other)
			require.Empty(t, other.told.all)
		})
	}
}

// firstIsFenced: by the classic protocol the id is whose process came last.
func firstIsFenced(t *testing.T, g *realGroup, first, twin *realMember) {
	t.Helper()
	select {
	case <-first.s.Done():
	case <-time.After(2 * patience):
		require.FailNow(t, "the first one goes on")
	}
	require.ErrorIs(t, first.s.Err(), kerr.FencedInstanceID)
	require.ErrorContains(t, first.s.Err(), `InstanceID "a"; give each process its own`)
	first.wg.Wait()
	g.produce(5)
	g.awaitCommitted()
	g.leave(twin)
}

// twinIsKeptOut: by KIP-848 it is whose process has it.
func twinIsKeptOut(t *testing.T, g *realGroup, first, twin *realMember) {
	t.Helper()
	g.eventually("it is reported", func() bool { return len(twin.told.of(record.ReportGroupError)) > 0 })
	said := twin.told.of(record.ReportGroupError)[0]
	require.ErrorIs(t, said.Err, kerr.UnreleasedInstanceID)
	require.Contains(t, said.Hint, `InstanceID "a"`)
	require.ErrorIs(t, twin.s.Ready(), kerr.UnreleasedInstanceID)
	g.produce(5)
	g.awaitCommitted()
	require.NoError(t, first.s.Ready())
	g.leave(first)
	g.produce(5)
	g.awaitCommitted()
	require.NoError(t, twin.s.Ready())
	g.leave(twin)
}

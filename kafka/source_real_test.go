package kafka_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
)

// long says whether tests on the real broker take the time that they deserve.
func long() bool { return os.Getenv("HEADRACE_LONG") != "" }

// TestSourceChurnOnARealBroker is TestSourceChurn in real time; HEADRACE_LONG makes it 45 s instead of 15.
func TestSourceChurnOnARealBroker(t *testing.T) {
	t.Parallel()
	d := 15 * time.Second
	if long() {
		d = 45 * time.Second
	}
	real := kafkatest.Real(t)
	client := kafka.ClientConfig{Brokers: real.Brokers(), Logger: quiet()}
	for name, balancer := range map[string]kafka.Balancer{"Cooperative": kafka.Cooperative, "Eager": kafka.Eager} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				topic := kafkatest.Topic(t, real.Brokers(), 6)
				newChurn(t, client, topic, 6, balancer, seed).run(d)
			})
		}
	}
}

// TestSourceMemoryIsBoundedBehindASlowHandler has a backlog of a million records (200,000 without HEADRACE_LONG) and a
// handler that takes one.
func TestSourceMemoryIsBoundedBehindASlowHandler(t *testing.T) {
	backlog := 200_000
	if long() {
		backlog = 1_000_000
	}
	real := kafkatest.Real(t)
	topic := kafkatest.Topic(t, real.Brokers(), 4)
	produceBacklog(t, real.Brokers(), topic, backlog)

	before := resident(t)
	s, err := kafka.NewSource(kafka.SourceConfig{
		Client: kafka.ClientConfig{Brokers: real.Brokers(), Logger: quiet()}, Group: kafkatest.Name(t), Logger: quiet(),
		DrainGrace: time.Millisecond, HardGrace: time.Millisecond,
	})
	require.NoError(t, err)
	msgs, err := s.Subscriber(kafka.Subscription{MaxBatch: 500}).Subscribe(context.Background(), topic)
	require.NoError(t, err)
	<-msgs // and never answers
	for end := time.Now().Add(patience); !allPaused(s.Stats(), 4); wait(100 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "not all partitions are paused: %+v", s.Stats())
	}
	grown := resident(t) - before
	t.Logf("%d records of backlog, resident memory grew by %d MB", backlog, grown>>20)
	require.Less(t, grown, int64(200<<20))
	require.NoError(t, s.Close())
}

func allPaused(stats []kafka.PartitionStats, n int) bool {
	paused := 0
	for _, st := range stats {
		if st.Paused && st.InFlight > 0 {
			paused++
		}
	}
	return paused == n
}

func produceBacklog(t *testing.T, brokers []string, topic string, n int) {
	t.Helper()
	cl := kafkatest.Client(t, brokers, kgo.ProducerLinger(10*time.Millisecond), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	value := bytes.Repeat([]byte("v"), 200)
	for i := range n {
		cl.Produce(t.Context(), &kgo.Record{Topic: topic, Key: []byte(strconv.Itoa(i % 1000)), Value: value}, nil)
	}
	require.NoError(t, cl.Flush(t.Context()))
}

// resident is the process's resident memory after a collection.
func resident(t *testing.T) int64 {
	t.Helper()
	runtime.GC()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("no /proc on this machine")
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			require.NoError(t, err)
			return kb << 10
		}
	}
	t.Fatal("no VmRSS in /proc/self/status")
	return 0
}

package outbox_test

import (
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/record"
)

// TestForwarder_AllowedToWriteOnlyLaterSendsThen is the regression of a forwarder whose client was refused its producer id
// once, and then sent nothing until its process was restarted.
func TestForwarder_AllowedToWriteOnlyLaterSendsThen(t *testing.T) {
	t.Parallel()
	b := newBed(t, kfake.SeedTopics(4, "t"))
	denied := b.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ClusterAuthorizationFailed, Count: -1})
	b.publish("t", keyed("a", 0, 10)...)
	b.forward(b.config())
	b.eventually("it is reported", func() bool { return len(b.reported(record.ReportOutboxBlocked)) > 0 })
	denied.Remove()
	b.drained()
	require.Zero(t, requireInOrder(t, b.read("t"), 1, 10))
}

// TestForwarder_ANewClientWritesNoEventBeforeARefusedOne is the regression of a client that took the place of one that waited
// for another topic. It was given hundreds of events of a topic that it did not know yet, and was flushing already when it
// learnt the partitions: so the first events left before the others were handed to their partition, and where these were refused
// by then, the others were written.
func TestForwarder_ANewClientWritesNoEventBeforeARefusedOne(t *testing.T) {
	t.Parallel()
	b := newBed(t, kfake.SeedTopics(1, "silent", "well"))
	kafkatest.CreateTopic(t, b.brokers, "small", 1, "max.message.bytes", "20000")
	sent := make(chan struct{})
	first := sync.OnceFunc(func() { close(sent) })
	cfg := b.config()
	cfg.Timeout = time.Minute
	// The second event of the key is late, as on a machine that is busy: the first is on its way, and back.
	cfg.Partitioner = kgo.BasicConsistentPartitioner(func(string) func(*kgo.Record, int) int {
		return func(r *kgo.Record, _ int) int {
			if string(r.Key) == "k" && string(r.Value) == "1" {
				<-sent
				<-time.After(300 * time.Millisecond)
			}
			return 0
		}
	})
	b.forward(cfg)
	for i := range 6 {
		b.publish("small", keyed("warm", 100*i, 100)...)
		b.drained()
	}

	silent := b.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "silent", Err: kerr.NotEnoughReplicas, Count: -1})
	b.publish("silent", keyed("s", 0, 1)...)
	b.eventually("the topic was tried", func() bool { return silent.Hits() > 0 })
	b.publish("well", keyed("w", 0, 1)...)
	b.eventually("the other goes on, with a new client", func() bool { return b.waiting() == 1 })

	b.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "small", Observe: true, When: func(kmsg.Request) bool {
		first()
		return true
	}})
	large := keyed("k", 0, 1)[0]
	large.Metadata.Set("noise", noise(30_000))
	b.publish("small", append([]*message.Message{large}, keyed("k", 1, 100)...)...)
	b.eventually("it is reported", func() bool { return len(b.reported(record.ReportOutboxBlocked)) == 1 })
	require.ErrorIs(t, b.reported(record.ReportOutboxBlocked)[0].Err, kerr.MessageTooLarge)
	require.Empty(t, keyOnly(b.read("small"), "k"), "events that come after one that was refused")
	silent.Remove()
	b.eventually("the silent one has answered", func() bool { return b.waiting() == 101 })
}

package outbox_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

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

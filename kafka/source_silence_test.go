package kafka_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// TestSourceSilence has a coordinator that does not answer for a session, and knows the member afterwards.
func TestSourceSilence(t *testing.T) {
	t.Parallel()
	t.Run("FirstRecordsThatThePollHadInHandAreReadAgain", func(t *testing.T) {
		virtual(t, partitionsInHand, silenceFindsThePollAtWork)
	})
	t.Run("LostClaimIsNotToldAsEndedInOrder", func(t *testing.T) { virtual(t, 1, silenceIsNoOrderlyEnd) })
}

const partitionsInHand = 8

// forgive has the broker keep its members for longer than their Sources wait for it.
func (w *world) forgive() {
	w.fake.ControlKey(kmsg.JoinGroup.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.fake.KeepControl()
		req.(*kmsg.JoinGroupRequest).SessionTimeoutMillis = 120_000
		return nil, nil, false
	})
}

// forgivenSession is a SessionTimeout that pauseCoordinator outlasts.
func forgivenSession(c *kafka.SourceConfig) { c.SessionTimeout = 8 * time.Second }

// pauseCoordinator answers one heartbeat so late that the Source has ended its claims, and in time for the client.
func (w *world) pauseCoordinator() {
	var once sync.Once
	w.fake.ControlKey(kmsg.Heartbeat.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		w.fake.KeepControl()
		once.Do(func() { w.fake.SleepControl(func() { wait(9500 * time.Millisecond) }) })
		return nil, nil, false
	})
}

// silenceFindsThePollAtWork: one fetch brings the error of a partition and the first records of the others, and whoever is
// told of the error takes until the silence is told of. The client does not give again what the poll has taken.
func silenceFindsThePollAtWork(w *world) {
	w.forgive()
	joins, silence := w.observe(kmsg.JoinGroup.Int16()), make(chan struct{})
	var once, first sync.Once
	told, got := &reports{}, &seen{}
	s := w.source(told.hook, forgivenSession, func(c *kafka.SourceConfig) {
		c.Hooks.OnReport = func(r record.Report) {
			switch r.Kind {
			case record.ReportPartitionError:
				<-silence
			case record.ReportCoordinatorSilent:
				once.Do(func() { close(silence) })
			}
		}
	})
	wg := handle(w.subscribe(s), func(msg *message.Message) error {
		got.add(records(msg)[0])
		return nil
	})
	wait(5 * time.Second)
	joined := joins.Hits()
	w.pauseCoordinator()
	var arm atomic.Bool
	w.fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Fetch}, Topic: "t", Partitions: []int32{0}, Err: kerr.TopicAuthorizationFailed,
		When: func(kmsg.Request) bool { return arm.Load() },
	})
	asked, filled := make(chan struct{}), make(chan struct{})
	w.fake.ControlKey(kmsg.Fetch.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		w.fake.SleepControl(func() {
			first.Do(func() { close(asked) })
			<-filled
		})
		return nil, nil, false
	})
	<-asked
	for p := int32(1); p < partitionsInHand; p++ {
		w.produceMany(p, 1)
	}
	arm.Store(true)
	close(filled)
	<-silence
	wait(time.Minute)
	for p := int32(1); p < partitionsInHand; p++ {
		w.produceMany(p, 1)
	}
	wait(10 * time.Second)
	for p := int32(1); p < partitionsInHand; p++ {
		require.Subset(w.t, got.of(p), upTo(2), "partition %d", p)
		require.EqualValues(w.t, 2, w.committed(p))
	}
	require.Equal(w.t, 2*partitionsInHand, told.events("assigned"))
	require.Equal(w.t, joined, joins.Hits(), "the client was told of no new assignment")
	require.NoError(w.t, s.Close())
	wg.Wait()
}

// silenceIsNoOrderlyEnd: whoever counts the claims that nobody gave up would take a lost one for released.
func silenceIsNoOrderlyEnd(w *world) {
	w.forgive()
	w.produceMany(0, 2)
	var began, ended atomic.Int32
	told := &reports{}
	s := w.source(told.hook, forgivenSession)
	sub := s.Subscriber(kafka.Subscription{Started: func(context.Context, *record.Record) func(context.Context) {
		began.Add(1)
		return func(context.Context) { ended.Add(1) }
	}})
	wg := handle(w.subscribe(sub), ack)
	wait(5 * time.Second)
	w.pauseCoordinator()
	wait(20 * time.Second)
	require.Equal(w.t, 1, told.events("lost"))
	require.EqualValues(w.t, 1, began.Load())
	require.Zero(w.t, ended.Load())
	w.produceMany(0, 1)
	wait(5 * time.Second)
	require.NoError(w.t, s.Close())
	wg.Wait()
	require.EqualValues(w.t, 2, began.Load(), "the claim that came back")
	require.EqualValues(w.t, 1, ended.Load(), "ended in order")
}

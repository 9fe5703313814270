package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// TestSourceFaults breaks what is around the Source.
func TestSourceFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		partitions int32
		run        func(*world)
	}{
		{"OffsetBelowTheLogAtStartHoldsThatPartitionOnly", 2, offsetBelowTheLogAtStart},
		{"OffsetBelowTheLogAtRunTimeIsHeldAndReportedOnce", 1, offsetBelowTheLogAtRunTime},
		{"RecreatedTopicIsHeldAndReadFromItsStartAfterARestart", 1, recreatedTopic},
		{"AbortedTransactionsAreNotRead", 1, abortedTransactions},
		{"OffsetGapsDoNotStallTheWatermark", 1, offsetGaps},
		{"SilentCoordinatorEndsTheClaims", 1, silentCoordinator},
		{"CoordinatorThatForgetsNothingGetsTheClaimsBack", 1, forgivingCoordinator},
		{"StuckRecordIsReported", 1, stuckRecord},
		{"HandlerBeyondMaxPollIntervalMakesTheMemberLeave", 1, handlerBeyondMaxPollInterval},
		{"HoldBeyondMaxPollIntervalTripsNothing", 1, holdBeyondMaxPollInterval},
		{"FullClaimIsPausedAndRevokedAtOnce", 2, fullClaim},
		{"FewerBytesThanPartitionsHoldAFetchOfEach", 4, fewerBytesThanPartitions},
		{"BackoffAndHoldEndAtOnceOnARevoke", 1, waitsEndOnARevoke},
		{"RefusedTopicShowsInReady", 1, refusedTopic},
		{"RefusedGroupShowsInReady", 1, refusedGroup},
		{"FailingCommitsAreReportedOnceAndCaughtUp", 1, failingCommits},
		{"EndOfAClaimCommitsNothingThatIsCommittedAlready", 1, lastCommitOfNothingNew},
		{"BytesThatNobodyCanDecodeAreData", 1, undecodableBytes},
		{"StopDuringASilenceIsBounded", 1, stopDuringASilence},
	} {
		t.Run(c.name, func(t *testing.T) { virtual(t, c.partitions, c.run) })
	}
}

// consumeAll runs a Source until n records were settled, and stops it.
func (w *world) consumeAll(n int) []int64 {
	w.t.Helper()
	s, got := w.source(), &seen{}
	wg := handle(w.subscribe(s), func(msg *message.Message) error {
		got.add(records(msg)[0])
		return nil
	})
	for i := 0; got.total() < n; i++ {
		require.Less(w.t, i, 300, "got %d of %d", got.total(), n)
		wait(time.Second)
	}
	require.NoError(w.t, s.Close())
	wg.Wait()
	return got.of(0)
}

func offsetBelowTheLogAtStart(w *world) {
	w.produceMany(0, 5)
	w.consumeAll(5)
	w.produceMany(0, 95)
	w.produceMany(1, 5)
	require.NoError(w.t, w.fake.DeleteRecords("t", 0, 50))
	fetches, told, got := w.observe(1), &reports{}, &seen{}
	s := w.source(told.hook)
	wg := handle(w.subscribe(s), func(msg *message.Message) error {
		got.add(records(msg)[0])
		return nil
	})
	wait(2 * time.Minute)
	require.ElementsMatch(w.t, upTo(5), got.of(1), "healthy partitions go on")
	require.Empty(w.t, got.of(0), "no silent jump")
	require.EqualValues(w.t, 5, w.committed(0), "unchanged until somebody decides")
	require.Len(w.t, told.of("offset_out_of_range"), 1)
	require.EqualValues(w.t, 5, told.of("offset_out_of_range")[0].Offset)
	require.ErrorIs(w.t, s.Ready(), kerr.OffsetOutOfRange)
	require.NoError(w.t, s.Live())
	require.Less(w.t, fetches.Hits(), 10*120+100, "no storm: an idle partition is fetched ten times a second")
	for _, st := range s.Stats() {
		if st.Partition == 0 {
			require.Equal(w.t, "offset_out_of_range", st.Holding)
		}
	}
	require.NoError(w.t, s.Close())
	wg.Wait()
}

func offsetBelowTheLogAtRunTime(w *world) {
	w.produceMany(0, 10)
	told := &reports{}
	s := w.source(told.hook, func(c *kafka.SourceConfig) { c.MaxInFlight = 10 })
	msgs := w.subscribe(s)
	w.take(msgs).Ack()
	wait(5 * time.Second) // full: paused
	w.produceMany(0, 90)
	require.NoError(w.t, w.fake.DeleteRecords("t", 0, 50))
	wg := handle(msgs, func(*message.Message) error { return nil })
	wait(5 * time.Minute)
	require.EqualValues(w.t, 10, w.committed(0))
	require.Len(w.t, told.of("offset_out_of_range"), 1)
	require.EqualValues(w.t, 10, told.of("offset_out_of_range")[0].Offset)
	require.NoError(w.t, s.Close())
	wg.Wait()
}

func recreatedTopic(w *world) {
	w.produceMany(0, 50)
	told, got := &reports{}, &seen{}
	s := w.source(told.hook)
	wg := handle(w.subscribe(s), func(msg *message.Message) error {
		got.add(records(msg)[0])
		return nil
	})
	wait(5 * time.Second)
	require.NoError(w.t, w.fake.DeleteTopic("t"))
	require.NoError(w.t, w.fake.CreateTopic("t", 1, nil))
	w.renewProducer()
	w.produceMany(0, 80)
	wait(3 * time.Minute)
	require.Len(w.t, got.of(0), 50, "nothing is read of a topic that is another one")
	require.NotEmpty(w.t, told.of("topic_recreated"))
	require.Error(w.t, s.Ready())
	require.NoError(w.t, s.Close())
	wg.Wait()
	require.EqualValues(w.t, -1, w.committed(0), "the old topic's offset is not committed for the new one")
	require.ElementsMatch(w.t, upTo(80), w.consumeAll(80))
}

func abortedTransactions(w *world) {
	tx, err := kgo.NewClient(append(w.client().Options(), kgo.TransactionalID("tx"), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	require.NoError(w.t, err)
	defer tx.Close()
	for i, commit := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit, kgo.TryAbort} {
		require.NoError(w.t, tx.BeginTransaction())
		for range 3 {
			r := &kgo.Record{Topic: "t", Value: []byte(fmt.Sprint(i))}
			require.NoError(w.t, tx.ProduceSync(context.Background(), r).FirstErr())
		}
		require.NoError(w.t, tx.EndTransaction(context.Background(), commit))
	}
	// abort: 0..2 and a marker; commit: 4..6 and a marker at 7; abort: 8..10 and a marker
	require.ElementsMatch(w.t, []int64{4, 5, 6}, w.consumeAll(3))
	require.EqualValues(w.t, 7, w.committed(0))
	w.produceMany(0, 1)
	require.Equal(w.t, []int64{12}, w.consumeAll(1))
	require.EqualValues(w.t, 13, w.committed(0))
}

func offsetGaps(w *world) {
	require.NoError(w.t, w.fake.DeleteTopic("t"))
	require.NoError(w.t, w.fake.CreateTopic("t", 1, map[string]string{"cleanup.policy": "compact"}))
	w.renewProducer()
	for i := range 20 {
		w.produce(0, fmt.Sprint(i%3), fmt.Sprint("only", i))
	}
	w.fake.Compact()
	got := w.consumeAll(20 + 3)
	require.Less(w.t, len(got), 40, "compaction made gaps")
	require.EqualValues(w.t, 40, w.committed(0))
}

// silent swallows what a member asks its coordinator, without an error and without a reset.
func (w *world) silent() (end func()) {
	var over atomic.Bool
	for _, key := range []kmsg.Key{kmsg.Heartbeat, kmsg.OffsetCommit, kmsg.FindCoordinator, kmsg.JoinGroup, kmsg.LeaveGroup} {
		w.fake.ControlKey(key.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			if over.Load() {
				w.fake.DropControl()
				return nil, nil, false
			}
			w.fake.KeepControl()
			return nil, nil, true
		})
	}
	return func() { over.Store(true) }
}

func silentCoordinator(w *world) {
	w.produceMany(0, 2)
	told := &reports{}
	s := w.source(told.hook, func(c *kafka.SourceConfig) { c.SessionTimeout = 10 * time.Second })
	msgs := w.subscribe(s)
	msg := w.take(msgs)
	wait(5 * time.Second)
	end := w.silent()
	began := time.Now()
	<-msg.Context().Done()
	require.ErrorIs(w.t, context.Cause(msg.Context()), record.ErrLost)
	require.Less(w.t, time.Since(began), 15*time.Second)
	require.False(w.t, records(msg)[0].Settle(record.Effected))
	require.Len(w.t, told.of("coordinator_silent"), 1)
	wait(30 * time.Second)
	end()
	again := w.take(msgs)
	for records(again)[0].Offset != 0 { // the other one that was in a lane
		again = w.take(msgs)
	}
	again.Ack()
	wait(5 * time.Second)
	require.EqualValues(w.t, 1, w.committed(0))
	require.NoError(w.t, s.Close())
}

// forgivingCoordinator was only paused: it still knows the member, so the client is told of no new assignment.
func forgivingCoordinator(w *world) {
	w.forgive()
	w.produceMany(0, 10)
	told := &reports{}
	s := w.source(told.hook, func(c *kafka.SourceConfig) { c.SessionTimeout = 8 * time.Second })
	msgs := w.subscribe(s)
	w.take(msgs).Ack()
	msg := w.take(msgs)
	wait(5 * time.Second)
	end := w.silent()
	<-msg.Context().Done()
	end()
	again, got := w.take(msgs), map[int64]bool{}
	for ; ; again = w.take(msgs) {
		again.Ack()
		if got[records(again)[0].Offset] = true; len(got) == 9 {
			break
		}
	}
	require.False(w.t, got[0], "it goes on where it was")
	wait(5 * time.Second)
	require.EqualValues(w.t, 10, w.committed(0))
	require.Equal(w.t, 2, told.events("assigned"))
	require.NoError(w.t, s.Close())
}

func stuckRecord(w *world) {
	w.produceMany(0, 1)
	told := &reports{}
	s := w.source(told.hook)
	msg := w.take(w.subscribe(s.Subscriber(kafka.Subscription{Name: "r", AttemptTimeout: 5 * time.Second})))
	wait(9 * time.Second)
	require.Empty(w.t, told.of("stuck_record"))
	wait(time.Minute)
	stuck := told.of("stuck_record")
	require.Len(w.t, stuck, 1)
	require.Equal(w.t, "r", stuck[0].Route)
	require.Equal(w.t, "t", stuck[0].Topic)
	require.Greater(w.t, stuck[0].Age, 10*time.Second)
	require.NoError(w.t, s.Live())
	msg.Ack()
	require.NoError(w.t, s.Close())
}

func handlerBeyondMaxPollInterval(w *world) {
	w.produceMany(0, 1)
	told := &reports{}
	s := w.source(told.hook)
	began := time.Now()
	msg := w.take(w.subscribe(s))
	<-s.Done()
	require.Less(w.t, time.Since(began), 5*time.Minute+20*time.Second)
	require.ErrorContains(w.t, s.Err(), "t/0 offset 0")
	require.ErrorContains(w.t, s.Err(), "MaxPollInterval 5m0s")
	require.ErrorIs(w.t, s.Live(), s.Err())
	require.ErrorIs(w.t, s.Stop(context.Background()), s.Err())
	require.ErrorIs(w.t, context.Cause(msg.Context()), record.ErrStopping)
	require.Empty(w.t, w.fake.GroupInfo("g").Members, "another member can take over")
	require.Equal(w.t, 1, told.events("stopped"))
}

func holdBeyondMaxPollInterval(w *world) {
	w.produceMany(0, 1)
	s := w.source()
	msg := w.take(w.subscribe(s))
	record.Wait(records(msg))
	wait(10 * time.Minute)
	require.NoError(w.t, s.Live())
	require.True(w.t, record.Resume(records(msg)))
	msg.Ack()
	wait(2 * time.Second)
	require.EqualValues(w.t, 1, w.committed(0))
	require.NoError(w.t, s.Close())
}

// fewerBytesThanPartitions: each claim's share of so little is no byte, and all were full while they were empty.
func fewerBytesThanPartitions(w *world) {
	for p := range int32(4) {
		w.produceMany(p, 10)
	}
	s, got := w.source(func(c *kafka.SourceConfig) { c.MaxInFlightBytes = 3 }), &seen{}
	wg := handle(w.subscribe(s), func(msg *message.Message) error {
		got.add(records(msg)[0])
		return nil
	})
	wait(time.Minute)
	for p := range int32(4) {
		require.ElementsMatch(w.t, upTo(10), got.of(p))
	}
	require.NoError(w.t, s.Close())
	wg.Wait()
}

func fullClaim(w *world) {
	told := &reports{}
	s := w.source(told.hook, func(c *kafka.SourceConfig) { c.MaxInFlight = 10 })
	msgs := w.subscribe(s)
	wait(time.Second)
	for range 100 {
		w.produceMany(0, 1)
		w.produceMany(1, 1)
		wait(100 * time.Millisecond) // so that no fetch brings them all
	}
	held := []*message.Message{w.take(msgs), w.take(msgs), w.take(msgs), w.take(msgs)}
	wait(time.Minute)
	for _, st := range s.Stats() {
		require.True(w.t, st.Paused, "%+v", st)
		require.Less(w.t, st.InFlight, 100)
		require.Greater(w.t, st.OldestAge, 30*time.Second)
	}
	for _, msg := range held {
		record.Wait(records(msg)) // in a hold
	}
	other := w.source()
	theirs := w.subscribe(other)
	revoked := make(chan struct{})
	for _, msg := range held {
		go func() {
			select {
			case <-records(msg)[0].Soft():
				require.False(w.t, record.Resume(records(msg)))
				msg.Nack()
			case <-revoked: // of the partition that stays
				require.True(w.t, record.Resume(records(msg)))
				msg.Ack()
			}
		}()
	}
	for told.events("revoked") == 0 {
		wait(100 * time.Millisecond)
	}
	close(revoked)
	wgs := []interface{ Wait() }{handle(msgs, ack), handle(theirs, ack)}
	wait(30 * time.Second)
	require.EqualValues(w.t, 100, w.committed(0))
	require.EqualValues(w.t, 100, w.committed(1))
	require.NoError(w.t, other.Close())
	w.produceMany(0, 5)
	w.produceMany(1, 5)
	wait(30 * time.Second)
	require.EqualValues(w.t, 105, w.committed(0), "what was paused when it left is read when it comes back")
	require.EqualValues(w.t, 105, w.committed(1))
	require.NoError(w.t, s.Close())
	for _, wg := range wgs {
		wg.Wait()
	}
}

func ack(*message.Message) error { return nil }

func waitsEndOnARevoke(w *world) {
	w.produceMany(0, 2)
	told := &reports{}
	a := w.source(eager, told.hook)
	msgs := w.subscribe(a)
	w.take(msgs).Nack() // backs off in line
	held := w.take(msgs)
	record.Wait(records(held))
	b := w.source(eager)
	w.subscribe(b)
	<-records(held)[0].Soft()
	softened := time.Now()
	held.Nack()
	for told.events("revoked") == 0 {
		wait(10 * time.Millisecond)
	}
	require.Less(w.t, time.Since(softened), 200*time.Millisecond)
	require.NoError(w.t, a.Close())
	require.NoError(w.t, b.Close())
}

func refusedTopic(w *world) {
	w.produceMany(0, 3)
	f := w.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	told := &reports{}
	s := w.source(told.hook)
	wg := handle(w.subscribe(s), ack)
	wait(2 * time.Minute)
	require.ErrorIs(w.t, s.Ready(), kerr.TopicAuthorizationFailed)
	require.Len(w.t, told.of("partition_error"), 1, "reported once")
	var p *kafka.ProblemError
	require.ErrorAs(w.t, s.Ready(), &p)
	require.Equal(w.t, told.of("partition_error")[0].Hint, p.Hint())
	require.Greater(w.t, time.Since(p.Since), time.Minute, "and not since it was last tried")
	require.Less(w.t, f.Hits(), 30, "backs off")
	f.Remove()
	wait(time.Minute)
	require.NoError(w.t, s.Ready(), "heals by itself")
	require.EqualValues(w.t, 3, w.committed(0))
	require.NoError(w.t, s.Close())
	wg.Wait()
}

func refusedGroup(w *world) {
	w.produceMany(0, 3)
	f := w.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Err: kerr.GroupAuthorizationFailed, TopLevel: true, Count: -1})
	told := &reports{}
	s := w.source(told.hook)
	wg := handle(w.subscribe(s), ack)
	wait(2 * time.Minute)
	require.ErrorIs(w.t, s.Ready(), kerr.GroupAuthorizationFailed)
	require.Len(w.t, told.of("group_error"), 1)
	var p *kafka.ProblemError
	require.ErrorAs(w.t, s.Ready(), &p)
	require.Equal(w.t, told.of("group_error")[0].Hint, p.Hint())
	require.Empty(w.t, p.Place())
	require.Less(w.t, f.Hits(), 120, "at most one join a second")
	f.Remove()
	wait(time.Minute)
	require.NoError(w.t, s.Ready())
	require.EqualValues(w.t, 3, w.committed(0))
	require.NoError(w.t, s.Close())
	wg.Wait()
}

func failingCommits(w *world) {
	told := &reports{}
	s := w.source(told.hook)
	wg := handle(w.subscribe(s), ack)
	wait(5 * time.Second)
	f := w.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.GroupAuthorizationFailed, Count: -1})
	for range 30 {
		w.produceMany(0, 1)
		wait(time.Second)
	}
	require.EqualValues(w.t, -1, w.committed(0))
	require.Len(w.t, told.of("commit_failed"), 1)
	f.Remove()
	wait(3 * time.Second)
	require.EqualValues(w.t, 30, w.committed(0))
	require.NoError(w.t, s.Close())
	wg.Wait()
}

// lastCommitOfNothingNew: an idle claim's topic would be asked for, and a broker that is black-holed could cost the end its
// time, for what is committed already.
func lastCommitOfNothingNew(w *world) {
	s := w.source()
	wg := handle(w.subscribe(s), ack)
	w.produceMany(0, 3)
	wait(time.Minute)
	require.EqualValues(w.t, 3, w.committed(0))
	commits := w.observe(kmsg.OffsetCommit.Int16())
	require.NoError(w.t, s.Close())
	wg.Wait()
	require.Zero(w.t, commits.Hits())
}

func undecodableBytes(w *world) {
	joins := w.observe(kmsg.JoinGroup.Int16())
	for _, r := range []*kgo.Record{
		{Value: []byte{0xff, 0, 1}},
		{Key: []byte{}, Value: nil},
		{Headers: []kgo.RecordHeader{{Key: "h"}, {Key: "h", Value: []byte{}}, {Key: "", Value: []byte("\xff")}}},
	} {
		r.Topic = "t"
		require.NoError(w.t, w.producer.ProduceSync(context.Background(), r).FirstErr())
	}
	s := w.source()
	var got []*record.Record
	msgs := w.subscribe(s)
	for range 3 {
		msg := w.take(msgs)
		got = append(got, records(msg)[0])
		msg.Ack()
	}
	wait(time.Minute)
	require.EqualValues(w.t, 3, w.committed(0))
	require.Nil(w.t, got[0].Key)
	require.NotNil(w.t, got[1].Key, "an empty key is a key")
	require.Nil(w.t, got[1].Value, "a tombstone")
	require.Equal(w.t, []record.Header{{Key: "h"}, {Key: "h", Value: []byte{}}, {Key: "", Value: []byte("\xff")}}, got[2].Headers)
	require.LessOrEqual(w.t, joins.Hits(), 2, "it does not rejoin")
	require.NoError(w.t, s.Close())
}

func stopDuringASilence(w *world) {
	w.produceMany(0, 1)
	s := w.source()
	w.take(w.subscribe(s)).Ack()
	end := w.silent()
	began := time.Now()
	err := s.Close()
	require.True(w.t, err == nil || errors.Is(err, context.DeadlineExceeded))
	require.Less(w.t, time.Since(began), 10*time.Second)
	end()
}

// renewProducer makes a producer that knows the topic as it is now.
func (w *world) renewProducer() {
	w.t.Helper()
	w.producer.Close()
	var err error
	w.producer, err = kgo.NewClient(append(w.client().Options(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))...)
	require.NoError(w.t, err)
}

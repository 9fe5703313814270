package kafka_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

func TestSource(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		partitions int32
		run        func(*world)
	}{
		{"DeliversEverythingAndCommits", 2, deliversEverythingAndCommits},
		{"FirstStartOfAGroupReadsTheBacklog", 1, firstStartReadsTheBacklog},
		{"CommitsAreASecondApartAndNotARecordEach", 1, commitsAreASecondApart},
		{"StopFinishesWhatRuns", 1, stopFinishesWhatRuns},
		{"StopEndsTheContextOfAHandlerThatLingers", 1, stopEndsTheContext},
		{"RevokedClaimStopsAtOnce", 1, revokedClaimStopsAtOnce},
		{"KeptPartitionsReadOnDuringADrain", 2, keptPartitionsReadOn},
		{"LateSettleOfAnOldClaimMovesNothing", 1, lateSettleMovesNothing},
		{"NackOfAnEndedClaimIsDropped", 1, nackOfAnEndedClaim},
		{"NackComesAgainInOrderAfterABackoff", 1, nackComesAgain},
		{"StopDuringAPendingJoinLeavesNoGhost", 1, stopDuringAPendingJoin},
		{"AckOfABatchSettlesNothing", 1, ackOfABatchSettlesNothing},
		{"EverySubscriptionGetsEveryRecord", 2, everySubscriptionGetsEveryRecord},
		{"EndedSubscriptionHoldsTheOffset", 1, endedSubscriptionHolds},
		{"TopicSubscribedLaterIsAdded", 1, topicSubscribedLater},
		{"ShutGateBeginsNothing", 1, shutGateBeginsNothing},
		{"MessageContextHasValuesButNotTheEndOfItsSubscription", 1, contextValues},
		{"ReplaySubscriptionMarksItsRecordsAndNobodyElses", 1, replaySubscription},
	} {
		t.Run(c.name, func(t *testing.T) { virtual(t, c.partitions, c.run) })
	}
}

func deliversEverythingAndCommits(w *world) {
	w.produceMany(0, 100)
	w.produceMany(1, 50)
	s, got := w.source(), &seen{}
	wg := handle(w.subscribe(s), func(msg *message.Message) error {
		got.add(records(msg)[0])
		return nil
	})
	wait(5 * time.Second)
	require.ElementsMatch(w.t, upTo(100), got.of(0))
	require.ElementsMatch(w.t, upTo(50), got.of(1))
	require.EqualValues(w.t, 100, w.committed(0))
	require.NoError(w.t, s.Ready())
	for _, st := range s.Stats() {
		require.Zero(w.t, st.Lag, "%+v", st)
		require.Equal(w.t, st.Committed, st.Watermark)
		require.Zero(w.t, st.InFlight)
	}
	require.NoError(w.t, s.Close())
	wg.Wait()
	require.EqualValues(w.t, 50, w.committed(1))
	require.Empty(w.t, w.fake.GroupInfo("g").Members)
	require.ErrorIs(w.t, s.Ready(), kafka.ErrClosed)
}

func firstStartReadsTheBacklog(w *world) {
	w.produceMany(0, 3)
	s := w.source()
	msgs := w.subscribe(s)
	require.EqualValues(w.t, 0, records(w.take(msgs))[0].Offset)
	require.NoError(w.t, s.Close())
}

// commitsAreASecondApart is the regression of a stack that committed after each record, 8 records a second.
func commitsAreASecondApart(w *world) {
	commits := w.observe(8)
	s := w.source()
	wg := handle(w.subscribe(s), func(*message.Message) error { return nil })
	wait(time.Second)
	start := time.Now()
	for range 20 {
		w.produceMany(0, 100)
		wait(100 * time.Millisecond)
	}
	wait(2 * time.Second)
	require.EqualValues(w.t, 2000, w.committed(0))
	require.LessOrEqual(w.t, commits.Hits(), int(time.Since(start)/time.Second)+1)
	require.NoError(w.t, s.Close())
	wg.Wait()
}

func stopFinishesWhatRuns(w *world) {
	w.produceMany(0, 1)
	s := w.source()
	msgs := w.subscribe(s)
	msg := w.take(msgs)
	stopped := make(chan error, 1)
	go func() { stopped <- s.Close() }()
	wait(8 * time.Second)
	require.True(w.t, records(msg)[0].Ending())
	require.NoError(w.t, msg.Context().Err(), "within the grace its context lives")
	msg.Ack()
	require.NoError(w.t, <-stopped)
	require.EqualValues(w.t, 1, w.committed(0))
}

func stopEndsTheContext(w *world) {
	w.produceMany(0, 1)
	s := w.source()
	msg := w.take(w.subscribe(s))
	start := time.Now()
	stopped := make(chan error, 1)
	go func() { stopped <- s.Close() }()
	<-msg.Context().Done()
	require.Equal(w.t, 10*time.Second, time.Since(start))
	require.ErrorIs(w.t, context.Cause(msg.Context()), record.ErrStopping)
	require.NoError(w.t, <-stopped, "a handler that ignores its context does not keep the source")
	require.Equal(w.t, 15*time.Second, time.Since(start).Round(time.Second))
	require.False(w.t, records(msg)[0].Settle(record.Effected))
	require.EqualValues(w.t, -1, w.committed(0))
}

// revokedClaimStopsAtOnce is the regression of handlers whose context outlives the claim.
func revokedClaimStopsAtOnce(w *world) {
	w.produce(0, "a", "a", "b")
	a, told := w.source(eager), &reports{}
	msgs := w.subscribe(a)
	msg := w.take(msgs)
	w.take(msgs) // b
	b := w.source(eager, told.hook)
	w.subscribe(b)
	<-records(msg)[0].Soft()
	softened := time.Now()
	select {
	case m := <-msgs:
		w.t.Fatalf("%s began on a revoked claim", m.UUID)
	case <-msg.Context().Done():
	}
	require.Equal(w.t, 10*time.Second, time.Since(softened))
	require.ErrorIs(w.t, context.Cause(msg.Context()), record.ErrRevoked)
	require.NoError(w.t, a.Close())
	require.NoError(w.t, b.Close())
}

func TestSourceOfAServerSideGroupReadsAndCommits(t *testing.T) {
	virtual(t, 2, func(w *world) {
		beats, joins := w.observe(int16(kmsg.ConsumerGroupHeartbeat)), w.observe(int16(kmsg.JoinGroup))
		w.produceMany(0, 5)
		w.produceMany(1, 5)
		r := w.read(func(c *kafka.SourceConfig) { c.Balancer = kafka.ServerSide })
		wait(time.Minute)
		require.ElementsMatch(t, upTo(5), r.of(0))
		require.ElementsMatch(t, upTo(5), r.of(1))
		require.NoError(t, r.s.Ready())
		require.NoError(t, r.s.Live())
		r.close()
		require.EqualValues(t, 5, w.committed(0))
		require.Positive(t, beats.Hits())
		require.Zero(t, joins.Hits(), "nobody assigns but the coordinator")
		require.Empty(t, r.told.all)
	})
}

func TestSourceThatIsAStaticMemberComesBackAndNobodyElsesPartitionsMove(t *testing.T) {
	for name, balancer := range map[string]kafka.Balancer{"Cooperative": kafka.Cooperative, "ServerSide": kafka.ServerSide} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 2, func(w *world) {
				static := func(id string) func(*kafka.SourceConfig) {
					return func(c *kafka.SourceConfig) { c.InstanceID, c.Balancer = id, balancer }
				}
				first, other := w.read(static("a")), w.read(static("b"))
				wait(2 * time.Minute)
				require.Len(t, first.s.Stats(), 1)
				mine := first.s.Stats()[0].Partition
				w.produceMany(mine, 5)
				wait(5 * time.Second)
				first.close()
				w.produceMany(mine, 5)
				wait(5 * time.Second)
				again := w.read(static("a"))
				wait(time.Minute)
				require.ElementsMatch(t, upTo(5), first.of(mine))
				require.ElementsMatch(t, from(5, 5), again.of(mine))
				require.Zero(t, other.of(mine))
				require.Len(t, other.s.Stats(), 1)
				again.close()
				other.close()
				require.EqualValues(t, 10, w.committed(mine))
			})
		})
	}
}

// TestSourceOfAServerSideGroupLeavesThoughItsFirstLeaveIsNotAnswered: what it had would idle until its session ends, and
// under an instance id nobody would be let in.
func TestSourceOfAServerSideGroupLeavesThoughItsFirstLeaveIsNotAnswered(t *testing.T) {
	for name, id := range map[string]string{"Dynamic": "", "Static": "a"} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(w *world) {
				member := func(c *kafka.SourceConfig) { c.InstanceID, c.Balancer = id, kafka.ServerSide }
				first := w.read(member)
				w.produceMany(0, 5)
				wait(10 * time.Second)
				require.ElementsMatch(t, upTo(5), first.of(0))
				silent := true
				w.fake.ControlKey(int16(kmsg.ConsumerGroupHeartbeat), func(req kmsg.Request) (kmsg.Response, error, bool) {
					w.fake.KeepControl()
					if silent && req.(*kmsg.ConsumerGroupHeartbeatRequest).MemberEpoch < 0 {
						silent = false
						w.fake.SleepControl(func() { wait(time.Minute) })
					}
					return nil, nil, false
				})
				first.close()
				w.produceMany(0, 5)
				again := w.read(member)
				wait(10 * time.Second)
				require.False(t, silent)
				require.ElementsMatch(t, from(5, 5), again.of(0))
				again.close()
				require.Empty(t, again.told.all)
			})
		})
	}
}

func eager(c *kafka.SourceConfig) { c.Balancer = kafka.Eager }

// keptPartitionsReadOn: a cooperative rebalance takes one partition, whose handler lingers; the other goes on.
func keptPartitionsReadOn(w *world) {
	w.produceMany(0, 1)
	w.produceMany(1, 1)
	told := &reports{}
	a := w.source(told.hook)
	msgs := w.subscribe(a)
	first, second := w.take(msgs), w.take(msgs)
	b := w.source()
	theirs := w.subscribe(b)
	lingering, kept := first, second
	select {
	case <-records(first)[0].Soft():
	case <-records(second)[0].Soft():
		lingering, kept = second, first
	}
	at := records(kept)[0].Partition
	kept.Ack()
	for range 5 {
		w.produceMany(at, 1)
		began := time.Now()
		w.take(msgs).Ack()
		require.Less(w.t, time.Since(began), time.Second)
	}
	require.NoError(w.t, lingering.Context().Err(), "all of that was within the grace")
	lingering.Ack()
	w.produceMany(1-at, 1)
	require.EqualValues(w.t, 1, records(w.take(theirs))[0].Offset, "what the old claim settled while it drained is committed")
	require.NoError(w.t, a.Close())
	require.NoError(w.t, b.Close())
}

// lateSettleMovesNothing is A -> B -> A: the first claim's handler settles when its member owns the partition again.
func lateSettleMovesNothing(w *world) {
	w.produceMany(0, 10)
	a := w.source(eager)
	msgs := w.subscribe(a)
	old := w.take(msgs)
	w.take(msgs)
	b := w.source(eager)
	go func() {
		for range w.subscribe(b) { // never acknowledges
		}
	}()
	<-old.Context().Done()
	wait(time.Minute)
	require.NoError(w.t, b.Close())
	wait(time.Minute)
	again := w.take(msgs)
	require.EqualValues(w.t, 0, records(again)[0].Offset)
	require.False(w.t, records(old)[0].Settle(record.Effected))
	old.Ack()
	wait(5 * time.Second)
	require.EqualValues(w.t, -1, w.committed(0))
	again.Ack()
	wait(5 * time.Second)
	require.EqualValues(w.t, 1, w.committed(0))
	require.NoError(w.t, a.Close())
}

// nackOfAnEndedClaim is the regression of a nack that looped on a revoked partition beside the new owner.
func nackOfAnEndedClaim(w *world) {
	w.produceMany(0, 1)
	a := w.source(eager)
	msgs := w.subscribe(a)
	msg := w.take(msgs)
	b := w.source(eager)
	theirs := w.subscribe(b)
	<-records(msg)[0].Soft()
	msg.Nack()
	revoked := time.Now()
	owner := theirs
	var again *message.Message
	select {
	case again = <-theirs:
	case again = <-msgs: // it may be assigned to the first member again
		owner = msgs
	}
	require.Less(w.t, time.Since(revoked), 5*time.Second, "a nack ends the drain")
	require.EqualValues(w.t, 0, records(again)[0].Offset)
	select {
	case m := <-owner:
		w.t.Fatalf("%s came twice", m.UUID)
	case <-time.After(time.Minute):
	}
	again.Ack()
	require.NoError(w.t, a.Close())
	require.NoError(w.t, b.Close())
}

func nackComesAgain(w *world) {
	w.produce(0, "k", "k", "other")
	s := w.source()
	msgs := w.subscribe(s)
	first, other := w.take(msgs), w.take(msgs)
	require.EqualValues(w.t, 2, records(other)[0].Offset, "a busy key does not block its neighbours")
	old := records(first)[0]
	for _, backoff := range []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		nacked := time.Now()
		first.Nack()
		first = w.take(msgs)
		require.EqualValues(w.t, 0, records(first)[0].Offset)
		require.Equal(w.t, backoff*time.Millisecond, time.Since(nacked))
	}
	require.False(w.t, old.Settle(record.Effected), "a given back delivery settles nothing")
	require.NotSame(w.t, old, records(first)[0])
	first.Ack()
	require.EqualValues(w.t, 1, records(w.take(msgs))[0].Offset)
	require.NoError(w.t, s.Close())
}

// stopDuringAPendingJoin: another member drains, so that the join lasts; the stop waits for nothing and leaves nothing.
func stopDuringAPendingJoin(w *world) {
	w.produceMany(0, 1)
	a := w.source(eager)
	lingering := w.take(w.subscribe(a))
	b := w.source(eager)
	w.subscribe(b)
	<-records(lingering)[0].Soft()
	began := time.Now()
	require.NoError(w.t, b.Close())
	require.Less(w.t, time.Since(began), time.Second)
	require.NoError(w.t, lingering.Context().Err())
	lingering.Ack()
	wait(5 * time.Second)
	require.Len(w.t, w.fake.GroupInfo("g").Members, 1)
	require.Equal(w.t, "Stable", w.fake.GroupInfo("g").State)
	require.NoError(w.t, a.Close())
}

// ackOfABatchSettlesNothing: a middleware copied the message and its handler returned nil for 500 records.
func ackOfABatchSettlesNothing(w *world) {
	w.produceMany(0, 20)
	told := &reports{}
	s := w.source(told.hook)
	msgs := w.subscribe(s.Subscriber(kafka.Subscription{Name: "r", MaxBatch: 500}))
	msg := w.take(msgs)
	require.Nil(w.t, msg.Payload)
	_, err := record.Records(msg.Copy())
	require.ErrorIs(w.t, err, record.ErrNoRecords)
	rs := records(msg)
	rs[0].Settle(record.Effected)
	msg.Ack()
	wait(5 * time.Second)
	require.EqualValues(w.t, 1, w.committed(0))
	left := told.of("left_unsettled")
	require.Len(w.t, left, 1)
	require.EqualValues(w.t, 1, left[0].Offset)
	require.Equal(w.t, "r", left[0].Route)
	again := w.take(msgs)
	require.EqualValues(w.t, 1, records(again)[0].Offset)
	require.NoError(w.t, s.Close())
}

func everySubscriptionGetsEveryRecord(w *world) {
	w.produceMany(0, 30)
	w.produceMany(1, 30)
	s := w.source()
	one, two := &seen{}, &seen{}
	slow := make(chan struct{})
	first := handle(w.subscribe(s.Subscriber(kafka.Subscription{Name: "one"})), func(msg *message.Message) error {
		one.add(records(msg)[0])
		return nil
	})
	second := handle(w.subscribe(s.Subscriber(kafka.Subscription{Name: "two", MaxBatch: 7})), func(msg *message.Message) error {
		<-slow
		for _, r := range records(msg) {
			two.add(r)
			r.Settle(record.Effected)
		}
		return nil
	})
	wait(5 * time.Second)
	require.Equal(w.t, 60, one.total())
	require.EqualValues(w.t, -1, w.committed(0), "one subscription alone moves no offset")
	close(slow)
	wait(5 * time.Second)
	require.ElementsMatch(w.t, upTo(30), two.of(0))
	require.ElementsMatch(w.t, upTo(30), two.of(1))
	require.EqualValues(w.t, 30, w.committed(0))
	require.NoError(w.t, s.Close())
	first.Wait()
	second.Wait()
}

func endedSubscriptionHolds(w *world) {
	w.produceMany(0, 5)
	told := &reports{}
	s := w.source(told.hook)
	ctx, cancel := context.WithCancel(context.Background())
	msgs, err := s.Subscribe(ctx, "t")
	require.NoError(w.t, err)
	w.take(msgs).Ack()
	held := w.take(msgs)
	synctest.Wait()
	cancel()
	for range msgs { // until it is closed
		continue
	}
	require.NoError(w.t, held.Context().Err(), "its handler may finish")
	wait(2 * time.Minute)
	require.ErrorIs(w.t, context.Cause(held.Context()), record.ErrStopping)
	require.EqualValues(w.t, 1, w.committed(0))
	require.Len(w.t, told.of("subscription_gone"), 1)

	next := handle(w.subscribe(s), func(*message.Message) error { return nil })
	wait(10 * time.Second)
	require.EqualValues(w.t, 5, w.committed(0))
	require.NoError(w.t, s.Close())
	next.Wait()
}

func topicSubscribedLater(w *world) {
	require.NoError(w.t, w.fake.CreateTopic("later", 1, nil))
	s := w.source()
	wg := handle(w.subscribe(s), func(*message.Message) error { return nil })
	wait(10 * time.Second)
	require.NoError(w.t, w.producer.ProduceSync(context.Background(), &kgo.Record{Topic: "later"}).FirstErr())
	msgs, err := s.Subscribe(context.Background(), "later")
	require.NoError(w.t, err)
	require.Equal(w.t, "later", records(w.take(msgs))[0].Topic)
	require.NoError(w.t, s.Close())
	wg.Wait()
}

func shutGateBeginsNothing(w *world) {
	w.produceMany(0, 3)
	g := &fakeGate{}
	g.set(true)
	s := w.source()
	msgs := w.subscribe(s.Subscriber(kafka.Subscription{Gates: []kafka.Gate{g}}))
	select {
	case <-msgs:
		w.t.Fatal("a message began behind a shut gate")
	case <-time.After(15 * time.Minute):
	}
	require.NoError(w.t, s.Live(), "three times MaxPollInterval behind a shut gate is no stuck handler")
	g.set(false)
	w.take(msgs).Ack()
	require.NoError(w.t, s.Close())
	require.Zero(w.t, g.watchers())
}

func replaySubscription(w *world) {
	w.produceMany(0, 1)
	s := w.source()
	replayed := w.subscribe(s.Subscriber(kafka.Subscription{Name: "a", Replay: true}))
	other := w.subscribe(s.Subscriber(kafka.Subscription{Name: "b"}))
	require.True(w.t, records(w.take(replayed))[0].Replay)
	require.False(w.t, records(w.take(other))[0].Replay)
	require.NoError(w.t, s.Close())
}

type contextKey struct{}

func contextValues(w *world) {
	w.produceMany(0, 1)
	s := w.source()
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), contextKey{}, "v"))
	msgs, err := s.Subscribe(ctx, "t")
	require.NoError(w.t, err)
	msg := w.take(msgs)
	cancel()
	synctest.Wait()
	require.Equal(w.t, "v", msg.Context().Value(contextKey{}))
	require.NoError(w.t, msg.Context().Err(), "Watermill's Router cancels it while handlers finish")
	r := records(msg)[0]
	require.EqualValues(w.t, w.fake.TopicInfo("t").TopicID, r.TopicID)
	_, running := r.RunningSince()
	require.True(w.t, running)
	msg.Ack()
	synctest.Wait()
	require.ErrorIs(w.t, msg.Context().Err(), context.Canceled)
	require.ErrorIs(w.t, context.Cause(msg.Context()), context.Canceled)
	require.NoError(w.t, s.Close())
	require.EqualValues(w.t, 1, w.committed(0))
}

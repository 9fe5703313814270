package kafka_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/kafka"
)

// TestSourceBegin has somebody who remembers offsets beside the consumer group.
func TestSourceBegin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		partitions int32
		run        func(*world)
	}{
		{"LaterOffsetIsWhereThePartitionBegins", 2, beginsLater},
		{"LaterOffsetIsCommittedThoughNoRecordComes", 1, beginIsCommitted},
		{"EarlierOffsetNeverMovesThePartitionBack", 1, beginsNoEarlier},
		{"OffsetOfAGroupThatHasCommittedNothingCounts", 1, beginsWithoutACommit},
		{"WhatCannotBeAskedBeginsAtTheCommittedOffset", 1, beginFails},
		{"AnswerThatDoesNotComeHoldsNobodyUp", 1, beginHangs},
		{"AnswerOutlivesNoRebalance", 1, beginDuringARebalance},
		{"OffsetBehindTheEndOfTheLogIsHeldAndNothingSkipped", 2, beginsBehindTheEnd},
		{"LogThatWasCutAndHasGrownAgainIsHeld", 1, beginsInARegrownLog},
		{"LogWhoseEpochsAreUnknownIsRead", 1, beginsInAnUnknownEpoch},
		{"LogThatIsCutWhileItIsReadIsHeld", 1, cutAtRunTime},
		{"LogThatIsCutGoesOnWhereNobodyRemembersOffsets", 1, cutWithoutMemory},
		{"HeldPartitionStaysHeldBehindASilentCoordinator", 1, cutOutlivesASilence},
		{"OffsetBelowTheLogIsHeld", 1, beginsBelowTheLog},
		{"LogsThatCannotBeLookedAtBeginAtTheCommittedOffset", 1, beginsUnseen},
	} {
		t.Run(c.name, func(t *testing.T) { virtual(t, c.partitions, c.run) })
	}
}

// memory answers Begin.
type memory struct {
	mu    sync.Mutex
	asked [][]kafka.Start
	knows map[int32]kafka.Start
}

func (m *memory) begin(_ context.Context, at []kafka.Start) ([]kafka.Start, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, at)
	var kept []kafka.Start
	for _, a := range at {
		if k, ok := m.knows[a.Partition]; ok {
			k.Topic, k.TopicID, k.Partition = a.Topic, a.TopicID, a.Partition
			kept = append(kept, k)
		}
	}
	return kept, nil
}

func (m *memory) questions() [][]kafka.Start {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

func knowing(offset, end int64, epoch int32) kafka.Start {
	return kafka.Start{Offset: offset, End: end, Epoch: epoch}
}

func remembering(m *memory) func(*kafka.SourceConfig) {
	return func(c *kafka.SourceConfig) { c.Begin = m.begin }
}

// reading is a Source whose handlers settle everything.
type reading struct {
	*seen

	w    *world
	s    *kafka.Source
	told *reports
	wg   *sync.WaitGroup
}

func (w *world) read(change ...func(*kafka.SourceConfig)) *reading {
	w.t.Helper()
	r := &reading{seen: &seen{}, w: w, told: &reports{}}
	r.s = w.source(append(change, r.told.hook)...)
	r.wg = handle(w.subscribe(r.s), func(msg *message.Message) error {
		r.add(records(msg)[0])
		return nil
	})
	return r
}

func (r *reading) close() {
	r.w.t.Helper()
	require.NoError(r.w.t, r.s.Close())
	r.wg.Wait()
}

func from(first, n int64) []int64 {
	os := make([]int64, n)
	for i := range os {
		os[i] = first + int64(i)
	}
	return os
}

func beginsLater(w *world) {
	w.produceMany(0, 5)
	w.consumeAll(5)
	w.produceMany(0, 5)
	w.produceMany(1, 3)
	m := &memory{knows: map[int32]kafka.Start{0: knowing(7, 9, -1)}}
	r := w.read(remembering(m))
	wait(10 * time.Second)
	require.ElementsMatch(w.t, from(7, 3), r.of(0))
	require.ElementsMatch(w.t, upTo(3), r.of(1), "nothing is remembered of it")
	r.close()
	require.Len(w.t, m.questions(), 1)
	for _, a := range m.questions()[0] {
		require.NotEqual(w.t, uuid.Nil, a.TopicID)
		require.Equal(w.t, "t", a.Topic)
		if a.Partition == 0 {
			require.EqualValues(w.t, 5, a.Offset)
			require.GreaterOrEqual(w.t, a.Epoch, int32(0))
		} else {
			require.EqualValues(w.t, -1, a.Offset, "the group has committed nothing")
		}
	}
	require.EqualValues(w.t, 10, w.committed(0))
	require.Empty(w.t, r.told.all)
}

func beginIsCommitted(w *world) {
	w.produceMany(0, 5)
	w.consumeAll(5)
	w.produceMany(0, 5)
	r := w.read(remembering(&memory{knows: map[int32]kafka.Start{0: knowing(10, 10, -1)}}))
	wait(10 * time.Second)
	require.Empty(w.t, r.of(0))
	require.EqualValues(w.t, 10, w.committed(0), "or the group would seem to lag for ever")
	st := r.s.Stats()[0]
	require.EqualValues(w.t, 10, st.Committed)
	require.Zero(w.t, st.Lag)
	r.close()
}

func beginsNoEarlier(w *world) {
	w.produceMany(0, 5)
	w.consumeAll(5)
	w.produceMany(0, 5)
	r := w.read(remembering(&memory{knows: map[int32]kafka.Start{0: knowing(2, 2, -1)}}))
	wait(10 * time.Second)
	require.ElementsMatch(w.t, from(5, 5), r.of(0))
	require.NoError(w.t, r.s.Ready())
	r.close()
}

func beginsWithoutACommit(w *world) {
	w.produceMany(0, 10)
	r := w.read(remembering(&memory{knows: map[int32]kafka.Start{0: knowing(4, 4, 0)}}))
	wait(10 * time.Second)
	require.ElementsMatch(w.t, from(4, 6), r.of(0))
	r.close()
}

func beginFails(w *world) {
	w.produceMany(0, 10)
	r := w.read(func(c *kafka.SourceConfig) {
		c.Begin = func(context.Context, []kafka.Start) ([]kafka.Start, error) { return nil, errors.New("no database") }
	})
	wait(10 * time.Second)
	require.ElementsMatch(w.t, upTo(10), r.of(0))
	require.NoError(w.t, r.s.Ready())
	r.close()
}

func beginHangs(w *world) {
	w.produceMany(0, 10)
	r := w.read(func(c *kafka.SourceConfig) {
		c.Begin = func(ctx context.Context, _ []kafka.Start) ([]kafka.Start, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	wait(6 * time.Second)
	require.ElementsMatch(w.t, upTo(10), r.of(0))
	r.close()
}

// beginDuringARebalance: the answer to the first question comes after the partition may have another owner.
func beginDuringARebalance(w *world) {
	w.produceMany(0, 10)
	m := &memory{knows: map[int32]kafka.Start{0: knowing(4, 4, -1)}}
	asked, ended := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r := w.read(func(c *kafka.SourceConfig) {
		c.Balancer = kafka.Eager
		c.Begin = func(ctx context.Context, at []kafka.Start) ([]kafka.Start, error) {
			once.Do(func() {
				close(asked)
				<-ctx.Done()
				close(ended)
			})
			return m.begin(ctx, at)
		}
	})
	<-asked
	began := time.Now()
	r.s.ForceRebalance()
	<-ended
	require.Less(w.t, time.Since(began), 3*time.Second, "a rebalance does not wait for it")
	wait(10 * time.Second)
	require.ElementsMatch(w.t, from(4, 6), r.of(0))
	require.GreaterOrEqual(w.t, len(m.questions()), 2)
	r.close()
}

func beginsBehindTheEnd(w *world) {
	w.produceMany(0, 5)
	w.consumeAll(5)
	w.produceMany(1, 3)
	m := &memory{knows: map[int32]kafka.Start{0: knowing(3, 8, -1)}}
	r := w.read(remembering(m))
	wait(10 * time.Second)
	w.produceMany(0, 10) // the log grows beyond what is remembered of the one before
	wait(3 * time.Minute)
	require.ElementsMatch(w.t, upTo(3), r.of(1), "healthy partitions go on")
	require.Empty(w.t, r.of(0), "5 to 7 are not what was done")
	require.EqualValues(w.t, 5, w.committed(0))
	require.Len(w.t, r.told.of("truncated"), 1)
	require.EqualValues(w.t, 5, r.told.of("truncated")[0].Offset)
	require.ErrorContains(w.t, r.s.Ready(), "records before offset 8 were read, and the log ends at 5")
	require.NoError(w.t, r.s.Live())
	r.close()
	require.EqualValues(w.t, 5, w.committed(0))
}

// regrown says that leader epoch 0 of a partition ended at an offset, whatever the log has.
func (w *world) regrown(at int64) {
	w.fake.ControlKey(kmsg.OffsetForLeaderEpoch.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		for _, rt := range req.(*kmsg.OffsetForLeaderEpochRequest).Topics {
			topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
			topic.Topic = rt.Topic
			for _, rp := range rt.Partitions {
				p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				p.Partition, p.LeaderEpoch, p.EndOffset = rp.Partition, 0, at
				topic.Partitions = append(topic.Partitions, p)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	})
}

func beginsInARegrownLog(w *world) {
	w.produceMany(0, 4)
	w.consumeAll(4)
	w.produceMany(0, 16)
	w.regrown(6)
	r := w.read(remembering(&memory{knows: map[int32]kafka.Start{0: knowing(9, 9, 0)}}))
	wait(3 * time.Minute)
	require.Empty(w.t, r.of(0), "6 to 8 are other records than those that were done")
	require.Len(w.t, r.told.of("truncated"), 1)
	require.ErrorContains(w.t, r.told.of("truncated")[0].Err, "ends at offset 6")
	r.close()
	require.EqualValues(w.t, 4, w.committed(0))
}

func beginsInAnUnknownEpoch(w *world) {
	w.produceMany(0, 10)
	w.regrown(-1)
	r := w.read(remembering(&memory{knows: map[int32]kafka.Start{0: knowing(5, 9, 0)}}))
	wait(time.Minute)
	require.ElementsMatch(w.t, from(5, 5), r.of(0))
	require.Empty(w.t, r.told.of("truncated"))
	r.close()
}

// cutNow moves the leadership, and the new leader's log has other records from an offset on.
func (w *world) cutNow(at int64) {
	w.regrown(at)
	require.NoError(w.t, w.fake.MoveTopicPartition("t", 0, 0))
	w.renewProducer()
	w.produceMany(0, 5)
}

func cutAtRunTime(w *world) {
	w.produceMany(0, 10)
	r := w.read(remembering(&memory{knows: map[int32]kafka.Start{0: knowing(-1, 0, -1)}}))
	wait(10 * time.Second)
	require.ElementsMatch(w.t, upTo(10), r.of(0))
	w.cutNow(6)
	wait(3 * time.Minute)
	require.Len(w.t, r.of(0), 10, "what is there now would pass for what was done")
	require.Len(w.t, r.told.of("truncated"), 1)
	require.Error(w.t, r.s.Ready())
	r.close()
	require.EqualValues(w.t, 10, w.committed(0))
}

func cutWithoutMemory(w *world) {
	w.produceMany(0, 10)
	r := w.read(remembering(&memory{}))
	wait(10 * time.Second)
	w.cutNow(6)
	wait(3 * time.Minute)
	require.Greater(w.t, len(r.of(0)), 10, "an inbox tells the new records from the old")
	require.NotEmpty(w.t, r.told.of("data_loss"))
	require.Empty(w.t, r.told.of("truncated"))
	r.close()
}

func cutOutlivesASilence(w *world) {
	w.forgive()
	w.produceMany(0, 5)
	m := &memory{knows: map[int32]kafka.Start{0: knowing(8, 8, -1)}}
	r := w.read(remembering(m), forgivenSession)
	wait(5 * time.Second)
	w.pauseCoordinator()
	wait(20 * time.Second)
	require.Equal(w.t, 1, r.told.events("lost"))
	require.Len(w.t, m.questions(), 1, "the client is told of no new assignment")
	require.Equal(w.t, 2, r.told.events("assigned"))
	require.Empty(w.t, r.of(0))
	require.ErrorContains(w.t, r.s.Ready(), "truncated")
	require.Len(w.t, r.told.of("truncated"), 1)
	r.close()
}

func beginsBelowTheLog(w *world) {
	w.produceMany(0, 10)
	require.NoError(w.t, w.fake.DeleteRecords("t", 0, 6))
	r := w.read(remembering(&memory{knows: map[int32]kafka.Start{0: knowing(4, 4, -1)}}))
	wait(time.Minute)
	require.Empty(w.t, r.of(0), "4 and 5 are gone, and nobody has seen them")
	require.Len(w.t, r.told.of("offset_out_of_range"), 1)
	require.EqualValues(w.t, 4, r.told.of("offset_out_of_range")[0].Offset)
	r.close()
}

// beginsUnseen: without a leader's epoch, only the look at the end of the log tells that an offset is in it.
func beginsUnseen(w *world) {
	w.produceMany(0, 10)
	var over atomic.Bool
	w.fake.ControlKey(kmsg.ListOffsets.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		if over.Load() {
			w.fake.DropControl()
			return nil, nil, false
		}
		w.fake.KeepControl()
		return nil, errors.New("the broker does not answer"), true
	})
	m := &memory{knows: map[int32]kafka.Start{0: knowing(4, 4, -1)}}
	r := w.read(remembering(m))
	for i := 0; len(m.questions()) == 0; i++ {
		require.Less(w.t, i, 60)
		wait(100 * time.Millisecond)
	}
	wait(4 * time.Second)
	over.Store(true)
	wait(time.Minute)
	require.ElementsMatch(w.t, upTo(10), r.of(0))
	r.close()
}

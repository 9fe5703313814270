package kafka_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// TestSourceLoss takes records away that were not read yet.
func TestSourceLoss(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		partitions int32
		run        func(*world)
	}{
		{"HoldTellsTheNumbers", 1, lossIsHeld},
		{"OldestGoesOnAtTheLogsStart", 2, lossGoesOnAtTheOldest},
		{"NewestGoesOnAtTheLogsEndAndCommitsIt", 1, lossGoesOnAtTheNewest},
		{"AtRunTimeWaitsForNobodyThatIsInHand", 1, lossAtRunTime},
		{"OffsetBehindTheEndIsReadFromTheStart", 1, lossBehindTheEnd},
		{"OffsetBehindTheEndOfWhatIsRememberedIsHeldWhateverThePolicy", 1, lossBehindTheEndOfWhatIsKept},
		{"RecreatedTopicIsReadFromItsStart", 2, recreatedIsReadFromItsStart},
		{"RecreatedTopicIsReadFromItsEnd", 1, recreatedIsReadFromItsEnd},
		{"RecreatedTopicWithFewerPartitionsIsRead", 3, recreatedIsSmaller},
		{"RecreatedTopicWaitsForARecordOfTheOldOne", 1, recreatedWaits},
	} {
		t.Run(c.name, func(t *testing.T) { virtual(t, c.partitions, c.run) })
	}
	// Brokers before 4.1 commit by the topic's name.
	byName := kversion.Stable()
	byName.SetMaxKeyVersion(kmsg.OffsetCommit.Int16(), 9)
	for _, l := range []kafka.OffsetLoss{kafka.LossHold, kafka.LossOldest} {
		t.Run("RecreatedTopicGetsNoOffsetOfAClaimThatIsPaused/"+l.String(), func(t *testing.T) {
			virtual(t, 1, func(w *world) { recreatedWhilePaused(w, l) }, kfake.MaxVersions(byName))
		})
	}
	require.Error(t, kafka.OffsetLoss(3).Validate())
}

func onLoss(l kafka.OffsetLoss) func(*kafka.SourceConfig) {
	return func(c *kafka.SourceConfig) { c.OnOffsetLoss = l }
}

// lose has a group at 5 of a log that holds 50 to 99.
func (w *world) lose() {
	w.t.Helper()
	w.produceMany(0, 5)
	w.consumeAll(5)
	w.produceMany(0, 95)
	require.NoError(w.t, w.fake.DeleteRecords("t", 0, 50))
}

// lost is what the one report of a kind says.
func (r *reading) lost(kind string) record.Lost {
	r.w.t.Helper()
	told := r.told.of(kind)
	require.Len(r.w.t, told, 1)
	return told[0].Lost
}

func lossIsHeld(w *world) {
	w.lose()
	r := w.read()
	wait(time.Minute)
	require.Equal(w.t, record.Lost{First: 5, Last: 49, Count: 45}, r.lost(record.ReportOffsetOutOfRange))
	require.ErrorContains(w.t, r.told.all[0].Err, "the log holds 50 to 100")
	require.Empty(w.t, r.of(0))
	r.close()
	require.EqualValues(w.t, 5, w.committed(0))
}

func lossGoesOnAtTheOldest(w *world) {
	w.lose()
	w.produceMany(1, 5)
	r := w.read(onLoss(kafka.LossOldest))
	wait(time.Minute)
	require.ElementsMatch(w.t, from(50, 50), r.of(0))
	require.ElementsMatch(w.t, upTo(5), r.of(1))
	require.Equal(w.t, record.Lost{First: 5, Last: 49, Count: 45}, r.lost(record.ReportOffsetOutOfRange))
	require.NoError(w.t, r.s.Ready())
	r.close()
	require.EqualValues(w.t, 100, w.committed(0))
	require.Equal(w.t, 1, r.told.events("assigned")-1, "one for each partition: it costs no rebalance")
}

func lossGoesOnAtTheNewest(w *world) {
	w.lose()
	r := w.read(onLoss(kafka.LossNewest))
	wait(time.Minute)
	require.EqualValues(w.t, 100, w.committed(0), "though no record has come: or the next process would skip what comes until then")
	require.Equal(w.t, record.Lost{First: 5, Last: 99, Count: 95}, r.lost(record.ReportOffsetOutOfRange))
	w.produceMany(0, 3)
	wait(5 * time.Second)
	require.ElementsMatch(w.t, from(100, 3), r.of(0))
	r.close()
	require.EqualValues(w.t, 103, w.committed(0))
}

func lossAtRunTime(w *world) {
	w.produceMany(0, 10)
	told, got := &reports{}, &seen{}
	s := w.source(told.hook, onLoss(kafka.LossOldest), func(c *kafka.SourceConfig) { c.MaxInFlight = 10 })
	msgs := w.subscribe(s)
	first := w.take(msgs)
	wait(5 * time.Second) // full: paused
	w.produceMany(0, 90)
	require.NoError(w.t, w.fake.DeleteRecords("t", 0, 50))
	wg := handle(msgs, func(msg *message.Message) error {
		got.add(records(msg)[0])
		return nil
	})
	wait(time.Minute)
	require.ElementsMatch(w.t, append(from(1, 9), from(50, 50)...), got.of(0), "what is in hand holds nobody up")
	require.EqualValues(w.t, -1, w.committed(0), "nor is it passed over")
	require.Equal(w.t, record.Lost{First: 10, Last: 49, Count: 40}, told.of(record.ReportOffsetOutOfRange)[0].Lost)
	first.Ack()
	wait(5 * time.Second)
	require.EqualValues(w.t, 100, w.committed(0))
	require.NoError(w.t, s.Close())
	wg.Wait()
}

// behind has a group at 20 of a log that holds 0 to 9.
func (w *world) behind() {
	w.t.Helper()
	w.produceMany(0, 10)
	w.consumeAll(10)
	w.commit(20)
}

func lossBehindTheEnd(w *world) {
	w.behind()
	r := w.read(onLoss(kafka.LossOldest))
	wait(time.Minute)
	require.ElementsMatch(w.t, upTo(10), r.of(0), "an inbox tells what was done")
	require.Equal(w.t, record.Lost{First: 10, Last: 19, Count: 10}, r.lost(record.ReportOffsetOutOfRange))
	r.close()
	require.EqualValues(w.t, 10, w.committed(0))
}

func lossBehindTheEndOfWhatIsKept(w *world) {
	w.behind()
	r := w.read(onLoss(kafka.LossOldest), remembering(&memory{knows: map[int32]kafka.Start{0: knowing(9, 9, -1)}}))
	wait(time.Minute)
	require.Empty(w.t, r.of(0))
	require.Len(w.t, r.told.of(record.ReportTruncated), 1)
	r.close()
	require.EqualValues(w.t, 20, w.committed(0))
}

// makeAnew has a topic of the same name, with n records in its first partition.
func (w *world) makeAnew(partitions int32, n int) {
	w.t.Helper()
	require.NoError(w.t, w.fake.DeleteTopic("t"))
	require.NoError(w.t, w.fake.CreateTopic("t", partitions, nil))
	w.renewProducer()
	w.produceMany(0, n)
}

func recreatedIsReadFromItsStart(w *world) {
	w.produceMany(0, 50)
	r := w.read(onLoss(kafka.LossOldest))
	wait(5 * time.Second)
	w.makeAnew(2, 80)
	w.produceMany(1, 3)
	wait(3 * time.Minute)
	require.ElementsMatch(w.t, append(upTo(50), upTo(80)...), r.of(0))
	require.ElementsMatch(w.t, upTo(3), r.of(1))
	require.Len(w.t, r.told.of(record.ReportTopicRecreated), 2, "once for each partition")
	require.NoError(w.t, r.s.Ready())
	r.close()
	require.EqualValues(w.t, 80, w.committed(0))
	require.EqualValues(w.t, 3, w.committed(1))
}

func recreatedIsReadFromItsEnd(w *world) {
	w.produceMany(0, 50)
	r := w.read(onLoss(kafka.LossNewest))
	wait(5 * time.Second)
	w.makeAnew(1, 80)
	wait(3 * time.Minute)
	require.ElementsMatch(w.t, upTo(50), r.of(0))
	require.EqualValues(w.t, 80, w.committed(0))
	w.produceMany(0, 2)
	wait(5 * time.Second)
	require.ElementsMatch(w.t, append(upTo(50), 80, 81), r.of(0))
	skipped := r.told.of(record.ReportTopicRecreated)
	require.Equal(w.t, record.Lost{First: 0, Last: 79, Count: 80}, skipped[len(skipped)-1].Lost)
	r.close()
}

func recreatedIsSmaller(w *world) {
	for p := range int32(3) {
		w.produceMany(p, 5)
	}
	r := w.read(onLoss(kafka.LossOldest))
	wait(5 * time.Second)
	w.makeAnew(1, 8)
	wait(3 * time.Minute)
	require.ElementsMatch(w.t, append(upTo(5), upTo(8)...), r.of(0))
	require.NoError(w.t, r.s.Ready(), "partitions that are not there any more trouble nobody")
	require.Len(w.t, r.s.Stats(), 1)
	r.close()
}

func recreatedWaits(w *world) {
	w.produceMany(0, 5)
	told, got := &reports{}, &seen{}
	s := w.source(told.hook, onLoss(kafka.LossOldest))
	goOn := make(chan struct{})
	wg := handle(w.subscribe(s), func(msg *message.Message) error {
		r := records(msg)[0]
		if r.Offset == 2 && len(got.of(0)) < 5 {
			select {
			case <-goOn:
			case <-msg.Context().Done():
				return errors.New("given up")
			}
		}
		got.add(r)
		return nil
	})
	wait(5 * time.Second)
	w.makeAnew(1, 3)
	wait(time.Minute)
	require.Len(w.t, got.of(0), 4, "a record of the old topic runs")
	close(goOn)
	wait(time.Minute)
	require.ElementsMatch(w.t, append(upTo(5), upTo(3)...), got.of(0))
	require.NoError(w.t, s.Close())
	wg.Wait()
	require.EqualValues(w.t, 3, w.committed(0))
}

// recreatedWhilePaused: nothing is fetched of the partition, so no error tells that its records are of a topic that is gone.
func recreatedWhilePaused(w *world, l kafka.OffsetLoss) {
	w.produceMany(0, 10)
	got := &seen{}
	s := w.source(onLoss(l), func(c *kafka.SourceConfig) { c.MaxInFlight = 10 })
	first, others := make(chan struct{}), make(chan struct{})
	wg := handle(w.subscribe(s), func(msg *message.Message) error {
		r, goOn := records(msg)[0], others
		if r.Offset == 0 {
			goOn = first
		}
		select {
		case <-goOn:
		case <-msg.Context().Done():
			return errors.New("given up")
		}
		got.add(r)
		return nil
	})
	wait(5 * time.Second) // full: paused
	w.makeAnew(1, 30)
	close(first) // is settled, and the claim is full still
	wait(10 * time.Second)
	require.EqualValues(w.t, -1, w.committed(0), "the old topic's offset is not committed for the new one")
	close(others)
	wait(time.Minute)
	if l == kafka.LossHold {
		require.NoError(w.t, s.Close())
		wg.Wait()
		require.EqualValues(w.t, -1, w.committed(0))
		require.ElementsMatch(w.t, upTo(30), w.consumeAll(30))
		return
	}
	require.ElementsMatch(w.t, append(upTo(10), upTo(30)...), got.of(0))
	require.EqualValues(w.t, 30, w.committed(0))
	require.NoError(w.t, s.Close())
	wg.Wait()
}

// commit sets the group's offset by hand.
func (w *world) commit(offset int64) {
	w.t.Helper()
	client, err := kgo.NewClient(w.client().Options()...)
	require.NoError(w.t, err)
	defer client.Close()
	to := kadm.Offsets{}
	to.AddOffset("t", 0, offset, -1)
	require.NoError(w.t, kadm.NewClient(client).CommitAllOffsets(w.t.Context(), "g", to))
}

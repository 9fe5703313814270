package e2e

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/kafkatest"
)

// TestStock has a test for each fault that was measured in a stock stack, named for the symptom there. Here it must not
// show.
func TestStock(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T){
		"SyncCommitPerRecordIsSlow":                          syncCommitPerRecord,
		"UndecodableRecordRejoinsForEver":                    undecodableRejoins,
		"CloseThrowsFinishedWorkAway":                        closeThrowsWorkAway,
		"ForeignRecordWithoutUUIDDedupsAsEmpty":              foreignWithoutUUID,
		"DeadLetterLosesKeyDuplicateHeadersNilValue":         deadLetterLoses,
		"CancelledTransactionKillsThePooledConnection":       cancelledTransaction,
		"AttemptWithoutDeadlineOutlivesTheBudget":            attemptWithoutDeadline,
		"PoisonWriteWithTheCancelledContextOfTheRecord":      poisonWithCancelledContext,
		"PanicTakesTheProcessDown":                           panicTakesDown,
		"AbortedTransactionsAreRead":                         abortedTransactions,
		"OffsetGapsStallTheWatermark/TransactionMarkers":     transactionMarkers,
		"OffsetGapsStallTheWatermark/Compaction":             compactedGaps,
		"FirstStartOfAGroupSkipsTheBacklog":                  firstStart,
		"HandlerContextOutlivesTheClaim":                     contextOutlivesClaim,
		"SameRecordHandledTwiceAtOnceByTwoMembers":           twiceAtOnce,
		"AckDuringARebalanceIsLost":                          ackDuringRebalance,
		"NackLoopOnARevokedPartition":                        nackLoop,
		"AMemberForEachTopic":                                oneMember,
		"HandlerThatChangesItsMessageChangesTheDeadLetter":   changedMessage,
		"RetryOfOneRecordBlocksTheWholePartition":            retryBlocks,
		"DuplicateIsSilentlySkippedAlthoughItsBytesDiffer":   otherBytes,
		"UniqueViolationOfTheHandlerIsTakenForADuplicate":    uniqueViolation,
		"ErrorOfTheHandlersOwnCancelledContextIsAShutdown":   ownCancel,
		"SwallowedDatabaseErrorCommitsHalfTheHandlersWrites": swallowed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

func syncCommitPerRecord(t *testing.T) {
	fake := kafkatest.Fake(t)
	w := newWorld(t, fake.ListenAddrs(), 4)
	commits := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Observe: true, Count: -1})
	w.produce(w.orders(3000, 100, order{})...)
	s := w.setup()
	s.Tune = func(c *consumer.Config) { c.CommitInterval = time.Second }
	began := time.Now()
	m := w.start(s)
	w.drained()
	m.quit()
	seconds := int(time.Since(began).Seconds()) + 1
	require.LessOrEqual(t, commits.Hits(), seconds+5, "one a second, and one for each claim's end at most")
	require.Equal(t, tally{Records: 3000, Effected: 3000}, w.one())
}

func undecodableRejoins(t *testing.T) {
	fake := kafkatest.Fake(t)
	w := newWorld(t, fake.ListenAddrs(), 1)
	joins := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Observe: true, Count: -1})
	rs := w.orders(20, 5, order{})
	for _, r := range rs {
		r.Value = []byte("\x00\xff")
	}
	w.produce(rs...)
	w.produce(w.orders(20, 5, order{})...)
	m := w.start(w.setup())
	w.drained()
	m.quit()
	require.Equal(t, tally{Records: 40, Effected: 20, Dead: 20}, w.one())
	require.Equal(t, map[string]int{"undecodable": 20}, w.reasons("post"))
	require.LessOrEqual(t, joins.Hits(), 2, "the broker asks the first one to come again with its name")
}

func closeThrowsWorkAway(t *testing.T) {
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	s := w.setup()
	entered, leave := make(chan struct{}), make(chan struct{})
	var met answers
	m := w.run(s, met.hooks(), s.route("post", func(ctx context.Context, tx pgx.Tx, e consumer.Event[order]) error {
		close(entered)
		<-leave
		return write(ctx, tx, "post", e)
	}))
	w.produce(w.orders(1, 1, order{})...)
	<-entered
	m.stop()
	w.eventually("it is stopping", func() bool { return m.c.Ready() != nil })
	close(leave) // it finishes after the stop has begun
	m.quit()
	require.EqualValues(t, 1, w.committed()[0])
	require.Equal(t, tally{Records: 1, Effected: 1}, w.one())
}

func foreignWithoutUUID(t *testing.T) {
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 2)
	rs := w.orders(30, 3, order{}) // the same bytes
	for i, r := range rs {
		switch i % 3 {
		case 0:
			r.Headers = nil
		case 1:
			r.Headers = []kgo.RecordHeader{{Key: uuidHeader, Value: nil}}
		case 2:
			r.Headers = []kgo.RecordHeader{{Key: uuidHeader, Value: []byte{}}}
		}
	}
	w.produce(rs...)
	m := w.start(w.setup())
	w.drained()
	m.quit()
	require.Equal(t, tally{Records: 30, Effected: 30}, w.one())
}

func deadLetterLoses(t *testing.T) {
	w := newWorld(t, kafkatest.Real(t).Brokers(), 3)
	headers := []kgo.RecordHeader{
		{Key: "twice", Value: []byte("1")},
		{Key: "nil", Value: nil},
		{Key: "empty", Value: []byte{}},
		{Key: "twice", Value: []byte("2")},
		{Key: "\xff\xfe", Value: []byte("\x00\xff\x80")},
		{Key: "", Value: []byte("no name")},
		{Key: markHeader, Value: []byte("3")},
	}
	for _, key := range [][]byte{nil, {}, []byte("k"), {0xff, 0}} {
		for _, value := range [][]byte{nil, {}, []byte("\xff\x00"), []byte("not json")} {
			r := w.record("", order{})
			r.Key, r.Value, r.Partition = key, value, 2
			r.Headers = append(r.Headers, headers...)
			w.produce(r)
		}
	}
	m := w.start(w.setup())
	w.drained()
	m.quit()
	require.Equal(t, tally{Records: 16, Dead: 16}, w.one()) // the audit compares byte for byte, nil with empty too
	for _, r := range w.read(w.deadLetters) {
		l, ok := openLetter(r)
		require.True(t, ok)
		at, _ := l.place()
		require.Equal(t, at.partition, r.Partition, "the same partition if there is one")
		require.WithinDuration(t, time.Now(), r.Timestamp, patience, "with its source's age retention would delete it at once")
	}
}

// A statement is cancelled by the attempt's deadline; the connection, its session and its prepared statements stay.
func cancelledTransaction(t *testing.T) {
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	s := w.setup()
	s.Options.AttemptTimeout, s.Options.Attempts = 500*time.Millisecond, 2
	s.Tune = func(c *consumer.Config) { c.Writers = 1 }
	backends := make(chan int, 100)
	m := w.run(s, nil, s.route("post", func(ctx context.Context, tx pgx.Tx, e consumer.Event[order]) error {
		var pid int
		if err := tx.QueryRow(ctx, `select pg_backend_pid()`).Scan(&pid); err != nil {
			return err
		}
		backends <- pid
		return act(ctx, tx, "post", e)
	}))
	w.produce(w.record("a", order{}))
	w.drained()
	w.produce(w.record("a", order{Do: "slow", N: 600_000}))
	w.drained()
	w.produce(w.record("a", order{}))
	w.drained()
	m.quit()
	require.Equal(t, tally{Records: 3, Effected: 2, Dead: 1}, w.one())
	require.Equal(t, map[string]int{"exhausted": 1}, w.reasons("post"))
	close(backends)
	first := <-backends
	for pid := range backends {
		require.Equal(t, first, pid, "the connection was closed and another opened")
	}
}

func attemptWithoutDeadline(t *testing.T) {
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	s := w.setup()
	s.Options.AttemptTimeout, s.Options.Attempts = 200*time.Millisecond, 3
	var attempts atomic.Int64
	m := w.run(s, nil, s.route("post", func(ctx context.Context, tx pgx.Tx, e consumer.Event[order]) error {
		if e.Data.Do != "hang" {
			return write(ctx, tx, "post", e)
		}
		attempts.Add(1)
		<-ctx.Done() // it has no deadline of its own
		return ctx.Err()
	}))
	w.produce(w.record("a", order{Do: "hang"}), w.record("b", order{}))
	w.drained()
	m.quit()
	require.Equal(t, tally{Records: 2, Effected: 1, Dead: 1}, w.one())
	require.Equal(t, map[string]int{"exhausted": 1}, w.reasons("post"))
	require.EqualValues(t, 3, attempts.Load())
}

// The context of the record has ended when it is found to be dead.
func poisonWithCancelledContext(t *testing.T) {
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	s := w.setup()
	s.Options.AttemptTimeout = 200 * time.Millisecond
	m := w.run(s, nil, s.route("post", func(ctx context.Context, _ pgx.Tx, _ consumer.Event[order]) error {
		<-ctx.Done()
		return fault.Permanent(errors.New("too late"))
	}))
	w.produce(w.orders(3, 3, order{})...)
	w.drained()
	m.quit()
	require.Equal(t, tally{Records: 3, Dead: 3}, w.one())
	require.Equal(t, map[string]int{"permanent": 3}, w.reasons("post"))
}

func panicTakesDown(t *testing.T) {
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	rs := w.orders(30, 10, order{})
	rs[7], rs[17] = w.record("key-7", order{Do: "panic"}), w.record("key-7", order{Do: "panic"})
	w.produce(rs...)
	p := w.spawn(w.setup())
	w.drained()
	p.quit()
	require.Equal(t, tally{Records: 30, Effected: 28, Dead: 2}, w.one())
	require.Equal(t, map[string]int{"panic": 2}, w.reasons("post"))
	for _, letters := range w.readLetters()["post"] {
		require.Contains(t, letters[0].fields["headrace-stack"], "test.act", "the letter says where")
	}
}

// transaction produces rs in one transaction.
func (w *world) transaction(end kgo.TransactionEndTry, rs ...*kgo.Record) {
	w.t.Helper()
	client := kafkatest.Client(w.t, w.brokers, kgo.TransactionalID(kafkatest.Name(w.t)))
	require.NoError(w.t, client.BeginTransaction())
	require.NoError(w.t, client.ProduceSync(w.t.Context(), rs...).FirstErr())
	require.NoError(w.t, client.EndTransaction(w.t.Context(), end))
	w.decided()
}

// decided waits until the brokers have written the markers of all transactions, which they do after they have answered:
// what is behind an open one cannot be read yet.
func (w *world) decided() {
	w.t.Helper()
	w.eventually("no transaction is open", func() bool {
		ends, err := w.admin.ListEndOffsets(w.t.Context(), w.topic)
		require.NoError(w.t, err)
		stable := w.ends(w.topic)
		open := false
		ends.Each(func(o kadm.ListedOffset) { open = open || o.Err != nil || o.Offset != stable[o.Partition] })
		return !open
	})
}

func abortedTransactions(t *testing.T) {
	w := newWorld(t, kafkatest.Real(t).Brokers(), 2)
	w.transaction(kgo.TryAbort, w.orders(20, 10, order{})...)
	w.transaction(kgo.TryCommit, w.orders(20, 10, order{})...)
	w.produce(w.orders(20, 10, order{})...)
	w.transaction(kgo.TryAbort, w.orders(20, 10, order{Do: "fail"})...)
	m := w.start(w.setup())
	w.drained()
	m.quit()
	require.Equal(t, tally{Records: 40, Effected: 40}, w.one()) // effects of aborted records would be strangers
}

// Every second offset is a marker: 0, 2, 4, …
func transactionMarkers(t *testing.T) {
	w := newWorld(t, kafkatest.Real(t).Brokers(), 1)
	client := kafkatest.Client(t, w.brokers, kgo.TransactionalID(kafkatest.Name(t)))
	for range 20 {
		require.NoError(t, client.BeginTransaction())
		require.NoError(t, client.ProduceSync(t.Context(), w.record("k", order{})).FirstErr())
		require.NoError(t, client.EndTransaction(t.Context(), kgo.TryCommit))
	}
	w.decided()
	m := w.start(w.setup())
	w.drained()
	w.produce(w.record("k", order{})) // behind the last marker
	w.drained()
	m.quit()
	require.Equal(t, tally{Records: 21, Effected: 21}, w.one())
	require.EqualValues(t, 41, w.committed()[0])
}

func compactedGaps(t *testing.T) {
	fake := kafkatest.Fake(t)
	w := newWorld(t, fake.ListenAddrs(), 1, "cleanup.policy", "compact")
	w.produce(w.orders(60, 3, order{})...)
	w.produce(w.orders(20, 20, order{})...)
	fake.Compact()
	left := len(w.read(w.topic))
	require.Less(t, left, 80)
	m := w.start(w.setup())
	w.drained()
	m.quit()
	require.Equal(t, tally{Records: left, Effected: left}, w.one())
	require.EqualValues(t, 80, w.committed()[0])
}

func firstStart(t *testing.T) {
	w := newWorld(t, kafkatest.Real(t).Brokers(), 3)
	w.produce(w.orders(30, 10, order{})...)
	m := w.start(w.setup()) // a group that has never been
	w.drained()
	m.quit()
	require.Equal(t, tally{Records: 30, Effected: 30}, w.one())
}

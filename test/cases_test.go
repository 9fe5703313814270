package e2e

import (
	"context"
	"errors"
	"maps"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// TestCases are further faults that users of other systems reported; docs/cases.md has the whole list.
func TestCases(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T){
		"TombstoneAndNilKeyAreData":                    tombstones,
		"ConsumerOfADeadLetterTopicNeverFeedsItself":   ownInput,
		"RefusedTopicIsReportedOnceAndHealsByItself":   refusedTopic,
		"BrokerThatIsGoneAtStartIsOneClearError":       goneAtStart,
		"RouteRenamedInCodeKeepsItsMemoryByItsName":    renamedType,
		"TwoMembersOnOneIdAtOnceHaveOneEffect":         oneIdTwoMembers,
		"OldRecordsCopyIsOfToday":                      oldRecord,
		"DeadLetterTopicThatGrowsOrIsSmallerIsWritten": fewerPartitions,
		"ErrorTextIsTrimmedAndRedacted":                errorText,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
	eachStore(t, "StuckHandlerInAQuietGroupTurnsLivenessRed", stuckHandler)
	eachStore(t, "TwoRoutesRunOnOneId", twoRoutes)
	eachStore(t, "RecreatedTopicIsAnotherOne", recreated)
	eachWay(t, "RecordThatKillsItsProcessIsDeadAsCrashLoop", crashLoop)
	eachWay(t, "RecordsThatKillTheirProcessCostThreeDeathsEach", crashLoops)
	eachWay(t, "RecordsOfOnePartitionStayInOrderAcrossLanes", orderByPartition)
}

func tombstones(t *testing.T) {
	w := newWorld(t, kafkatest.Real(t).Brokers(), 1)
	s := w.setup()
	s.Options.Decode = func(r *record.Record, into any) error {
		if r.Value == nil {
			*into.(*order) = order{Do: "fail"}
			return nil
		}
		return consumer.JSON(r, into)
	}
	dead := w.record("gone", order{})
	dead.Value = nil
	nobody := w.record("", order{})
	w.produce(dead, nobody, w.record("k", order{}))
	m := w.start(s)
	w.drained()
	m.quit()
	require.Equal(t, tally{Records: 3, Effected: 2, Dead: 1}, w.one())
	letters := w.read(w.deadLetters)
	require.Len(t, letters, 1)
	require.Nil(t, letters[0].Value)
}

func ownInput(t *testing.T) {
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	s := w.setup()
	loop := s.route("undertaker", func(context.Context, pgx.Tx, consumer.Event[order]) error { return nil })
	loop.Topic, loop.DeadLetterTopic = w.deadLetters, w.deadLetters
	_, err := consumer.New(s.config(w.pool, nil), loop)
	require.ErrorContains(t, err, "back to its topic")
	loop.DeadLetterTopic = ""
	_, err = consumer.New(s.config(w.pool, nil), loop)
	require.ErrorContains(t, err, "itself a dead letter topic")
	around := s.route("post", func(context.Context, pgx.Tx, consumer.Event[order]) error { return nil })
	loop.DeadLetterTopic = w.topic // by way of another route
	_, err = consumer.New(s.config(w.pool, nil), around, loop)
	require.ErrorContains(t, err, "back to its topic")
}

func refusedTopic(t *testing.T) {
	fake := kafkatest.Fake(t)
	w := newWorld(t, fake.ListenAddrs(), 1)
	w.produce(w.orders(20, 5, order{})...)
	refused := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: w.topic, Err: kerr.TopicAuthorizationFailed, Count: -1})
	joins := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Observe: true, Count: -1})
	m := w.start(w.setup())
	require.NoError(t, refused.Wait(t.Context(), 5))
	w.eventually("readiness says so", func() bool { err := m.c.Ready(); return err != nil && contains(err.Error(), w.topic) })
	require.NoError(t, m.c.Live())
	refused.Remove()
	w.drained()
	w.flows(m)
	m.quit()
	require.Equal(t, tally{Records: 20, Effected: 20}, w.one())
	require.LessOrEqual(t, joins.Hits(), 2)
	require.LessOrEqual(t, m.logs.lines("TOPIC_AUTHORIZATION_FAILED"), 10, "a log storm")
}

func goneAtStart(t *testing.T) {
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, nobody.Close())
	s := w.setup()
	s.Brokers = []string{nobody.Addr().String()}
	began := time.Now()
	m := w.start(s)
	err = m.ended()
	var start *consumer.StartError
	require.ErrorAs(t, err, &start)
	require.Len(t, start.Problems, 1)
	require.ErrorContains(t, err, "cannot be asked")
	require.Less(t, time.Since(began), time.Minute)
	require.LessOrEqual(t, m.logs.lines("refused"), 60, "a log storm")
}

// Nobody joins or leaves, nothing is produced: nothing but a watchdog sees that a handler hangs.
func stuckHandler(t *testing.T, store dedup.Store) {
	t.Helper()
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	w.store = store
	s := w.setup()
	s.DrainGrace = 500 * time.Millisecond
	s.Options.Attempts, s.Options.AttemptTimeout = 1, time.Second
	s.Tune = func(c *consumer.Config) {
		c.HardGrace, c.CommitReserve, c.DeadLetterTimeout = 500*time.Millisecond, time.Second, time.Second
		c.MaxPollInterval = 6 * time.Second
	}
	leave := make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(leave) }))
	reports := make(chan record.Report, 100)
	m := w.run(s, &record.Hooks{OnReport: func(r record.Report) { reports <- r }},
		s.route("post", func(context.Context, pgx.Tx, consumer.Event[order]) error {
			<-leave
			return errors.New("too late")
		}))
	w.produce(w.record("a", order{}))
	for r := range reports {
		if r.Kind == "stuck_record" {
			require.Equal(t, w.topic, r.Topic)
			require.Zero(t, r.Offset)
			require.Positive(t, r.Age)
			break
		}
	}
	require.NoError(t, m.c.Live(), "not yet: it may still come to an end")
	require.ErrorContains(t, m.ended(), "longer than MaxPollInterval")
	require.Error(t, m.c.Live())
}

func twoRoutes(t *testing.T, store dedup.Store) {
	t.Helper()
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 2)
	w.store = store
	w.routes = []string{"post", "notify", "audit"}
	w.produce(w.orders(50, 10, order{})...)
	m := w.start(w.setup())
	w.drained()
	m.quit()
	for route, got := range w.audit() {
		require.Equal(t, tally{Records: 50, Effected: 50}, got, route)
	}
}

type renamed struct{ Do string }

// The handler's type and function are others than yesterday; the route's name is the same.
func renamedType(t *testing.T) {
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	s := w.setup()
	rs := w.orders(20, 5, order{})
	w.produce(rs...)
	m := w.start(s)
	w.drained()
	m.quit()
	w.produce(fresh(rs)...)
	next := w.run(s, nil, consumer.Route[renamed]{
		Name: "post", Topic: w.topic,
		Apply: func(ctx context.Context, tx pgx.Tx, e consumer.Event[renamed]) error {
			return write(ctx, tx, "post", e)
		},
	})
	w.drained()
	next.quit()
	require.Equal(t, tally{Records: 40, Effected: 20, Duplicate: 20}, w.one())
}

// The same id on two partitions, in the hands of two members at once.
func oneIdTwoMembers(t *testing.T) {
	w := newWorld(t, kafkatest.Real(t).Brokers(), 2)
	s := w.setup()
	seen, hooks := watched()
	first := w.run(s, hooks, s.scripted()...)
	seen.next(t, "assigned")
	second := w.start(s)
	seen.next(t, "revoked") // one partition each
	w.flows(second)
	for range 30 {
		pair := w.perPartition(2, order{Do: "slow", N: 30})
		pair[1].Headers = pair[0].Headers
		w.produce(pair...)
	}
	w.drained()
	first.quit()
	second.quit()
	require.Equal(t, tally{Records: 60, Effected: 30, Duplicate: 30}, w.one())
}

// One record ends every process that handles it, as an os.Exit in a library or a lack of memory would. Records of other
// partitions are in flight each time.
func crashLoop(t *testing.T, as way) {
	t.Helper()
	fake := kafkatest.Fake(t, kfake.BrokerConfigs(map[string]string{"group.min.session.timeout.ms": "100"}))
	w := newWorld(t, fake.ListenAddrs(), 3)
	w.way = as
	s := w.setup()
	s.Session = time.Second
	for range 30 {
		w.produce(w.perPartition(3, order{Do: "slow", N: 10})...)
	}
	w.produce(w.record("", order{Do: "exit"}))
	for range 30 {
		w.produce(w.perPartition(3, order{Do: "slow", N: 10})...)
	}
	deaths := 0
	for deaths < 20 && !w.survives(w.spawn(s)) {
		deaths++
	}
	require.Equal(t, map[string]int{"crash_loop": 1}, w.reasons("post"))
	require.Equal(t, tally{Records: 181, Effected: 180, Dead: 1}, w.one())
}

// Several such records, of which two are in one partition. A process that ends in one of them knows the others no better.
func crashLoops(t *testing.T, as way) {
	t.Helper()
	fake := kafkatest.Fake(t, kfake.BrokerConfigs(map[string]string{"group.min.session.timeout.ms": "100"}))
	w := newWorld(t, fake.ListenAddrs(), 2)
	w.way = as
	s := w.setup()
	s.Session = time.Second
	const killers, partitions = 3, 2
	w.produce(w.perPartition(2, order{Do: "slow", N: 10})...)
	for n := range int32(killers) {
		r := w.record("", order{Do: "exit"})
		r.Partition = n % 2
		w.produce(r)
		w.produce(w.perPartition(2, order{Do: "slow", N: 10})...)
	}
	deaths := 0
	for deaths < 10*killers && !w.survives(w.spawn(s)) {
		deaths++
	}
	require.LessOrEqual(t, deaths, 3*partitions+3*killers,
		"two make a partition suspect, one more where the first committed what came before, three convict")
	require.Equal(t, map[string]int{"crash_loop": killers}, w.reasons("post"))
	require.Equal(t, tally{Records: 8 + killers, Effected: 8, Dead: killers}, w.one())
}

// survives says whether the process comes to the end of the topic, which it then leaves in order.
func (w *world) survives(p *process) (drained bool) {
	w.t.Helper()
	died := make(chan struct{})
	go func() {
		defer close(died)
		_ = p.cmd.Wait() // how it ended is in its log
	}()
	ends := w.ends(w.topic)
	w.eventually("it dies or comes to the end", func() bool {
		drained = maps.Equal(w.committed(), ends)
		return drained || closed(died)
	})
	if drained {
		p.signal(syscall.SIGTERM)
	}
	<-died
	return drained
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func orderByPartition(t *testing.T, as way) {
	t.Helper()
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	w.way = as
	s := w.setup()
	s.Options.Order, s.Options.Lanes, s.Options.MaxBatch = kafka.ByPartition, 4, 10
	rs := w.orders(300, 30, order{})
	rs[50], rs[150] = w.record("key-1", order{Do: "flaky", N: 1}), w.record("key-2", order{Do: "fail"})
	w.produce(rs...)
	m := w.start(s)
	w.drained()
	m.quit()
	require.Equal(t, tally{Records: 300, Effected: 299, Dead: 1}, w.one())
	last, effects := int64(0), w.effects("post")
	for i := range int64(300) {
		for _, e := range effects[place{0, i}] {
			require.Greater(t, e.seq, last, "offset %d", i)
			last = e.seq
		}
	}
}

// The source record is years old. Its letter is written with today's timestamp, or retention would remove it at once.
func oldRecord(t *testing.T) {
	w := newWorld(t, kafkatest.Real(t).Brokers(), 1, "retention.ms", "-1", "message.timestamp.before.max.ms", "9223372036854775807")
	old := w.record("a", order{Do: "fail"})
	old.Timestamp = time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	w.produce(old)
	m := w.start(w.setup())
	w.drained()
	m.quit()
	require.Equal(t, tally{Records: 1, Dead: 1}, w.one()) // with the source's own timestamp in a header
	require.WithinDuration(t, time.Now(), w.read(w.deadLetters)[0].Timestamp, patience)
}

func fewerPartitions(t *testing.T) {
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 6)
	kafkatest.CreateTopic(t, w.brokers, w.deadLetters, 2, "max.message.bytes", "2000000")
	w.produce(w.perPartition(6, order{Do: "fail"})...)
	m := w.start(w.setup())
	w.drained()
	_, err := w.admin.CreatePartitions(t.Context(), 3, w.deadLetters)
	require.NoError(t, err)
	w.produce(w.perPartition(6, order{Do: "fail"})...)
	w.drained()
	m.quit()
	require.Equal(t, tally{Records: 12, Dead: 12}, w.one())
}

func errorText(t *testing.T) {
	w := newWorld(t, kafkatest.Real(t).Brokers(), 1)
	s := w.setup()
	long := make([]byte, 1<<20)
	for i := range long {
		long[i] = "\xff\xc3"[i%2]
	}
	m := w.run(s, nil, s.route("post", func(context.Context, pgx.Tx, consumer.Event[order]) error {
		return errors.New("connect to postgres://billing:topsecret@db/x: " + string(long))
	}))
	r := w.record("a", order{})
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: "filler", Value: noise(t, 900_000)})
	w.produce(r)
	w.drained()
	m.quit()
	require.Equal(t, tally{Records: 1, Dead: 1}, w.one())
	for _, letters := range w.readLetters()["post"] {
		text := letters[0].fields["headrace-error-message"]
		require.LessOrEqual(t, len(text), 8<<10)
		require.NotContains(t, text, "topsecret")
		require.Contains(t, text, "connect to postgres://")
	}
	require.Zero(t, m.logs.lines("topsecret"))
}

// A topic is deleted and made again under its name: what is at offset 0 now is another record.
func recreated(t *testing.T, store dedup.Store) {
	t.Helper()
	w := newWorld(t, kafkatest.Real(t).Brokers(), 1)
	w.store = store
	rs := w.orders(10, 5, order{})
	for _, r := range rs {
		r.Headers = nil // known by their coordinates
	}
	w.produce(rs...)
	m := w.start(w.setup())
	w.drained()
	m.quit()
	require.Equal(t, 10, w.effected())
	_, err := w.admin.DeleteTopics(t.Context(), w.topic)
	require.NoError(t, err)
	w.eventually("the topic is gone", func() bool { return !w.exists(w.topic) })
	kafkatest.CreateTopic(t, w.brokers, w.topic, 1)
	w.produce(fresh(rs)...)
	next := w.start(w.setup())
	w.past(19)
	next.quit()
	require.Equal(t, 20, w.effected())
}

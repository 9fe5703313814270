package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
)

// patience is for what must happen, however busy the machine is; it never decides a test that is right.
const patience = 2 * time.Minute

// order is what the records say, and what their handler is to do.
type order struct {
	Do string `json:"do,omitempty"`
	N  int    `json:"n,omitempty"` // of do: how many attempts fail, how many milliseconds it takes
	// Ask is what the payment service is to do, of the routes that call it; see payments.
	Ask string `json:"ask,omitempty"`
}

// world is a topic with its dead letter topic, a consumer group and a database, of one test alone.
type world struct {
	t           *testing.T
	brokers     []string
	topic       string
	deadLetters string
	group       string
	routes      []string
	way                       // of all routes
	pool        *pgxpool.Pool // the auditor's own way to the database
	dsn         string        // the members' way to it
	admin       *kadm.Client
	payments    *payments // what the routes call; nil: they call nobody
	neighbours  []string  // other consumer groups that write to its dead letter topic
}

// effectsTable is where handlers write. It forbids nothing: what is there twice must be seen, not prevented.
func effectsTable(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `create table effects (seq bigint generated always as identity, route text, topic text,
		part int, off bigint, id text, key text, attempt int); create table repaired (route text)`)
	return err
}

// newWorld makes a world of one route on these brokers.
func newWorld(t *testing.T, brokers []string, partitions int, configs ...string) *world {
	t.Helper()
	return newWorldOn(t, brokers, pgtest.DSN(t, migrations.Up, effectsTable), partitions, configs...)
}

// newWorldOn makes a world on a database that is ready.
func newWorldOn(t *testing.T, brokers []string, dsn string, partitions int, configs ...string) *world {
	t.Helper()
	w := &world{
		t: t, brokers: brokers, topic: kafkatest.Topic(t, brokers, partitions, configs...), group: kafkatest.Name(t),
		routes: []string{"post"}, dsn: dsn, pool: pgtest.Pool(t, dsn),
	}
	w.renewAdmin()
	// CreateTopics is answered before the broker knows its partitions; a member that starts in between refuses to.
	w.eventually("the broker knows the topic that it has created", func() bool { return w.exists(w.topic) })
	w.deadLetters = w.topic + ".dlq"
	return w
}

// renewAdmin gives the auditor a client that knows nothing. It must not be answered out of a cache, nor wait for long for
// a broker that hangs.
func (w *world) renewAdmin() {
	w.t.Helper()
	w.admin = kadm.NewClient(kafkatest.Client(w.t, w.brokers, kgo.MetadataMinAge(10*time.Millisecond),
		kgo.RequestTimeoutOverhead(3*time.Second), kgo.RetryTimeout(5*time.Second)))
}

// repair is what a deployment of the fix does for what was broken.
func (w *world) repair(route string) {
	w.t.Helper()
	_, err := w.pool.Exec(w.t.Context(), `insert into repaired values ($1)`, route)
	require.NoError(w.t, err)
}

// record makes a record of an order with an id of its own. An empty key is no key: such a record goes to partition 0.
func (w *world) record(key string, o order) *kgo.Record {
	value, err := json.Marshal(o)
	require.NoError(w.t, err)
	r := &kgo.Record{Topic: w.topic, Value: value, Headers: []kgo.RecordHeader{{Key: uuidHeader, Value: []byte(uuid.NewString())}}}
	if key != "" {
		r.Key = []byte(key)
	}
	return r
}

// orders are n records that do the same, of so many keys.
func (w *world) orders(n, keys int, o order) []*kgo.Record {
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = w.record("key-"+strconv.Itoa(i%keys), o)
	}
	return rs
}

func (w *world) produce(rs ...*kgo.Record) {
	w.t.Helper()
	kafkatest.Produce(w.t, w.brokers, rs...)
}

// read gives the records of a topic that its transactions committed, by partition and offset; none for one that does
// not exist.
func (w *world) read(topic string) []*kgo.Record {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	left := map[int32]int64{}
	from := map[int32]kgo.Offset{}
	ends := w.ends(topic)
	if len(ends) == 0 {
		return nil
	}
	starts := w.listed(topic, w.admin.ListStartOffsets)
	for partition, end := range ends {
		start, _ := starts.Lookup(topic, partition)
		if start.Offset < end {
			left[partition], from[partition] = end, kgo.NewOffset().At(start.Offset)
		}
	}
	return w.readUntil(ctx, topic, from, left)
}

func (w *world) readUntil(ctx context.Context, topic string, from map[int32]kgo.Offset, left map[int32]int64) []*kgo.Record {
	w.t.Helper()
	if len(left) == 0 {
		return nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(w.brokers...), kgo.KeepControlRecords(), // a marker may be the last
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	require.NoError(w.t, err)
	defer client.Close()
	byPartition := make(map[int32][]*kgo.Record, len(left))
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		require.NoError(w.t, ctx.Err(), "reading %s: %v are left", topic, left)
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset >= left[r.Partition]-1 {
				delete(left, r.Partition)
			}
			if !r.Attrs.IsControl() {
				byPartition[r.Partition] = append(byPartition[r.Partition], r)
			}
		})
	}
	var rs []*kgo.Record
	for p := range int32(len(from) + maxPartition(from)) {
		rs = append(rs, byPartition[p]...)
	}
	return rs
}

func maxPartition(from map[int32]kgo.Offset) int {
	most := 0
	for p := range from {
		most = max(most, int(p))
	}
	return most
}

// ends are the ends of a topic's partitions, without the unfinished transactions; none for a topic that does not exist.
func (w *world) ends(topic string) map[int32]int64 {
	w.t.Helper()
	found := map[int32]int64{}
	w.listed(topic, w.admin.ListCommittedOffsets).Each(func(o kadm.ListedOffset) { found[o.Partition] = o.Offset })
	return found
}

// listed asks for offsets until every partition has a leader that answers; none for a topic that does not exist.
func (w *world) listed(topic string, ask func(context.Context, ...string) (kadm.ListedOffsets, error)) (found kadm.ListedOffsets) {
	w.t.Helper()
	w.eventually("the brokers know the offsets of "+topic+", or that it does not exist", func() bool {
		if !w.exists(topic) {
			found = nil
			return true
		}
		var err error
		found, err = ask(w.t.Context(), topic)
		return err == nil && found.Error() == nil
	})
	return found
}

func (w *world) exists(topic string) bool {
	w.t.Helper()
	topics, err := w.admin.ListTopics(w.t.Context(), topic)
	require.NoError(w.t, err)
	return !errors.Is(topics[topic].Err, kerr.UnknownTopicOrPartition)
}

// committed are the group's offsets. It waits for a coordinator, whom a test may just have killed.
func (w *world) committed() map[int32]int64 {
	w.t.Helper()
	return w.committedOf(w.topic)
}

func (w *world) committedOf(topic string) map[int32]int64 {
	w.t.Helper()
	found := map[int32]int64{}
	w.eventually("a coordinator tells the group's offsets", func() bool {
		offsets, err := w.admin.FetchOffsets(w.t.Context(), w.group)
		if err == nil {
			err = offsets.Error()
		}
		offsets.Each(func(o kadm.OffsetResponse) {
			if o.Topic == topic {
				found[o.Partition] = o.At
			}
		})
		if err == nil || errors.Is(err, kerr.GroupIDNotFound) {
			return true
		}
		w.renewAdmin() // this one holds on to a coordinator that hangs
		return false
	})
	return found
}

func (w *world) topicID(topic string) uuid.UUID {
	w.t.Helper()
	topics, err := w.admin.ListTopics(w.t.Context(), topic)
	require.NoError(w.t, err)
	return uuid.UUID(topics[topic].ID)
}

// eventually asks until the answer is yes. ask runs on the test's goroutine.
func (w *world) eventually(what string, ask func() bool) {
	w.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ask() {
		select {
		case <-tick.C:
		case <-deadline.C:
			require.FailNow(w.t, "it did not come to this: "+what)
		}
	}
}

// drained waits until the group has committed every record that is in the topic now.
func (w *world) drained() {
	w.t.Helper()
	w.reached(w.now())
}

// replaysDrained is drained for what was replayed.
func (w *world) replaysDrained() {
	w.t.Helper()
	w.reachedIn(w.replayTopic(), w.nowIn(w.replayTopic()))
}

// now is where the records that are in the topic end: the offsets that a group commits when it is done with them.
func (w *world) now() map[int32]int64 {
	w.t.Helper()
	return w.nowIn(w.topic)
}

func (w *world) nowIn(topic string) map[int32]int64 {
	w.t.Helper()
	next := map[int32]int64{}
	for _, r := range w.read(topic) {
		next[r.Partition] = r.Offset + 1
	}
	return next
}

// reached waits until the group has committed these offsets, as long as it commits more: suspects run one at a time, which
// takes a busy machine longer than anything else.
func (w *world) reached(next map[int32]int64) {
	w.t.Helper()
	w.reachedIn(w.topic, next)
}

func (w *world) reachedIn(topic string, next map[int32]int64) {
	w.t.Helper()
	defer func() {
		if w.t.Failed() {
			w.t.Logf("%d effects; the last records of %s end at %v, committed is %v", w.effected(), topic, next, w.committedOf(topic))
		}
	}()
	for last := w.committedOf(topic); ; {
		moved := false
		w.eventually("more is committed", func() bool {
			now := w.committedOf(topic)
			moved, last = !maps.Equal(now, last), now
			return moved || covers(now, next)
		})
		if !moved {
			return
		}
	}
}

// covers reports whether all that is asked for is committed.
func covers(committed, asked map[int32]int64) bool {
	for partition, offset := range asked {
		if committed[partition] < offset {
			return false
		}
	}
	return true
}

// effected is how many effects there are.
func (w *world) effected() (n int) {
	w.t.Helper()
	w.eventually("the auditor has an answer", func() bool { // its own connection may have died with the server
		return w.pool.QueryRow(w.t.Context(), `select count(*) from effects`).Scan(&n) == nil
	})
	return n
}

// past waits until there are more effects than n, or no more for so long that the members are through: a fast one may have
// done all that there is. Whether it stands still instead, the ledger says in the end. Before the first effect nobody is
// through with anything: on a busy machine a member may take long to come, and a broker that is killed before is another test.
func (w *world) past(n int) {
	w.t.Helper()
	const through = 20 * time.Second
	last, since := -1, time.Now()
	w.eventually(fmt.Sprintf("more than %d effects", n), func() bool {
		if now := w.effected(); now != last {
			last, since = now, time.Now()
		}
		return last > n || last > 0 && time.Since(since) > through
	})
}

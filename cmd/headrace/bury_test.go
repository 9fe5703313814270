package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/record"
)

// payments answers 500 to what is asked for one order, for ever, and is well otherwise.
type payments struct {
	url    string
	bad    atomic.Int64 // calls for the bad order
	mended atomic.Bool
}

func newPayments(t *testing.T) *payments {
	t.Helper()
	p := &payments{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad" {
			p.bad.Add(1)
			if !p.mended.Load() {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}
	}))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// route is charge-order as one that asks payments.
func (p *payments) route(t *testing.T, options consumer.Options) consumer.AnyRoute {
	t.Helper()
	d, err := downstream.New(downstream.Config{Name: "payments", RefuseInTransaction: true})
	require.NoError(t, err)
	client := &http.Client{Transport: d.Transport(nil)}
	return consumer.CallRoute[order, int]{
		Name: "charge-order", Topic: "orders", Dependency: d, Repeat: consumer.RepeatKeyed, Options: options,
		Call: func(ctx context.Context, e consumer.Event[order]) (int, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/"+e.Data.Fate, http.NoBody)
			if err != nil {
				return 0, err
			}
			resp, err := client.Do(req)
			if err != nil {
				return 0, err
			}
			defer func() { _ = resp.Body.Close() }()
			return resp.StatusCode, downstream.Check(resp)
		},
		Apply: func(ctx context.Context, tx pgx.Tx, e consumer.Event[order], _ int) error {
			_, err := tx.Exec(ctx, `insert into effects (id, route) values ($1, 'charge-order')`, e.Data.ID)
			return err
		},
	}
}

// keyed sends orders of one key to partition 1.
func (w *world) keyed(orders ...order) {
	w.t.Helper()
	for _, o := range orders {
		value, err := json.Marshal(o)
		require.NoError(w.t, err)
		w.produce("orders", 1, time.Now(), []byte("c-7"), value, record.Header{Key: record.UUIDHeader, Value: []byte(o.ID)})
	}
}

func (w *world) sayDead(args ...string) result {
	w.t.Helper()
	return w.run(append([]string{"bury", "--group", "billing", "--route", "charge-order"}, args...)...)
}

// known makes charge-order a route that has run.
func (w *world) known() {
	w.t.Helper()
	_, err := w.pool.Exec(w.t.Context(), `insert into headrace.consumers (consumer_group, route) values ('billing', 'charge-order')`)
	require.NoError(w.t, err)
}

// states counts the inbox's rows.
func (w *world) states() (effected, skipped, dead int) {
	w.t.Helper()
	require.NoError(w.t, w.pool.QueryRow(w.t.Context(), `select count(*) filter (where state = 0),
		count(*) filter (where state = 1), count(*) filter (where state = 2) from headrace.inbox`).Scan(&effected, &skipped, &dead))
	return effected, skipped, dead
}

// A record that its dependency always fails, with nobody else answered in between, blocks its partition. The command
// frees it, its letter says so and can be replayed.
func TestBury_FreesAPartitionThatARecordBlocks(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t), newPayments(t)
	stop := w.startWith(p.route(t, consumer.Options{}))
	w.keyed(order{"order-1", "bad"}, order{"order-2", "good"}, order{"order-3", "good"})
	require.Eventually(t, func() bool { return p.bad.Load() >= 4 }, patience, 10*time.Millisecond, "more than its attempts")
	require.Empty(t, w.settled)

	r := w.sayDead("--at", "orders/1/0", "--dry-run")
	require.Equal(t, exitOK, r.code, r.err)
	require.Contains(t, r.out, "would be dead")
	_, _, dead := w.states()
	require.Zero(t, dead)

	r = w.sayDead("--at", "orders/1/0", "--why", "payments answers 500 to it; password=hunter22", "--yes")
	require.Equal(t, exitOK, r.code, r.err)
	require.Contains(t, r.out, "order-1\n")
	require.NotContains(t, r.out+r.err, "hunter22")
	require.Equal(t, map[record.Outcome]int{record.Dead: 1, record.Effected: 2}, w.outcomes(3))
	w.requireEffects(2)
	letter := w.ok("dlq", "show", "--topic", "orders.dlq", "--at", "orders/1/0", "--state")
	for _, line := range []string{"reason        manual", "error         payments answers 500 to it; ", "state         dead", "id            order-1"} {
		require.Contains(t, letter.out, line)
	}
	require.NotContains(t, letter.out, "hunter22")

	t.Log("what is dead stays dead")
	r = w.sayDead("--at", "orders/1/0", "--yes")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "nothing was changed: orders/1/0: it is dead already (manual: payments answers 500 to it")
	r = w.sayDead("--at", "orders/1/1", "--yes")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "the route has effected it")

	t.Log("its letter is replayed like any other")
	p.mended.Store(true)
	w.ok("dlq", "replay", "--topic", "orders.dlq", "--at", "orders/1/0")
	require.Equal(t, record.SettleInfo{Outcome: record.Effected, Replay: true}, outcomeOf(w.next()))
	w.requireEffects(3)
	effected, skipped, dead := w.states()
	require.Equal(t, []int{3, 0, 0}, []int{effected, skipped, dead})
	stop()
	offsets, err := kadm.NewClient(w.client).FetchOffsets(t.Context(), "billing")
	require.NoError(t, err)
	at, _ := offsets.Lookup("orders", 1)
	require.EqualValues(t, 3, at.At)
}

func outcomeOf(i record.SettleInfo) record.SettleInfo {
	return record.SettleInfo{Outcome: i.Outcome, Replay: i.Replay}
}

// While the consumer is down the row waits for it, and the record is never run.
func TestBury_BeforeTheConsumerComesToTheRecord(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t), newPayments(t)
	stop := w.startWith(p.route(t, consumer.Options{Identity: []dedup.Resolver{dedup.Field("id")}}))
	w.keyed(order{"order-0", "good"})
	require.Equal(t, record.Effected, w.next().Outcome)
	stop()
	w.keyed(order{"order-1", "bad"}, order{"order-2", "good"})

	// The route finds the id in the value, the command by itself in the header alone.
	value, err := json.Marshal(order{"order-3", "bad"})
	require.NoError(t, err)
	w.produce("orders", 1, time.Now(), []byte("c-7"), value)
	require.Equal(t, exitOK, w.sayDead("--at", "orders/1/1", "--yes").code)
	r := w.sayDead("--at", "orders/1/3", "--id", dedup.KeyOf("order-3").String(), "--why", "", "--yes")
	require.Equal(t, exitOK, r.code, r.err)

	w.startWith(p.route(t, consumer.Options{Identity: []dedup.Resolver{dedup.Field("id")}}))
	require.Equal(t, map[record.Outcome]int{record.Dead: 2, record.Effected: 1}, w.outcomes(3))
	require.Zero(t, p.bad.Load())
	require.Contains(t, w.ok("dlq", "show", "--topic", "orders.dlq", "--at", "orders/1/3").out, "error         an operator said so")

	t.Log("without the id the inbox would wait for nobody")
	value, err = json.Marshal(order{"order-4", "good"})
	require.NoError(t, err)
	w.produce("orders", 1, time.Now(), []byte("c-7"), value)
	require.Equal(t, record.Effected, w.next().Outcome)
	require.Eventually(t, func() bool {
		r = w.sayDead("--at", "orders/1/4", "--dry-run")
		return r.code == exitFailed
	}, patience, 50*time.Millisecond, "once its offset is committed")
	require.Contains(t, r.err, "group billing has passed orders/1/4, it goes on at offset 5")
	require.Contains(t, r.err, "--id")
}

// A letter that was replayed and has died again is dead, also where it stands now.
func TestBury_ReplayThatDiedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	w.die("order-1", "down")
	w.ok("dlq", "replay", "--topic", "orders.dlq", "--at", "orders/1/0")
	require.Equal(t, record.Dead, w.next().Outcome, "again")
	r := w.sayDead("--at", "orders.billing.replay/1/0", "--yes")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "it is dead already (exhausted: payments: 503 Service Unavailable)")
	require.Contains(t, r.err, "--topic orders.dlq --at orders/1/0")
	r = w.run("bury", "--group", "billing", "--route", "archive-order", "--at", "orders.billing.replay/1/0", "--yes")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, `the inbox knows no route "archive-order" of consumer group "billing"`)
	require.Contains(t, r.err, "billing/charge-order")
}

// A record whose id is another one's goes its own way: the command says which.
func TestBury_RecordsThatNeedNoHelp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	w.keyed(order{"order-1", "good"})
	require.Equal(t, record.Effected, w.next().Outcome)
	w.keyed(order{"order-1", "good"}, order{"order-1", "other"})
	require.Equal(t, map[record.Outcome]int{record.Duplicate: 1, record.Dead: 1}, w.outcomes(2))
	require.Contains(t, w.sayDead("--at", "orders/1/1", "--yes").err, "settles it as a duplicate by itself")
	r := w.sayDead("--at", "orders/1/2", "--yes")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "makes it a dead letter by itself (id_conflict)")
	require.Contains(t, w.ok("dlq", "ls", "--topic", "orders.dlq", "--json", "--state").out, `"state":"dead"`)

	w.ok("dlq", "replay", "--topic", "orders.dlq", "--at", "orders/1/2", "--new-id")
	require.Equal(t, record.Effected, w.next().Outcome)
	require.Contains(t, w.ok("dlq", "ls", "--topic", "orders.dlq", "--json", "--state").out, `"state":"effected"`)
}

// While its handler runs the command waits, and after a few seconds says so.
func TestBury_RecordThatIsInHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.known()
	w.keyed(order{"order-1", "good"})
	tx, err := w.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), `insert into headrace.inbox (consumer_id, message_id, value_hash, coordinates)
		select id, $1::text::uuid, 0, 0 from headrace.consumers`, dedup.KeyOf("order-1").String())
	require.NoError(t, err)
	r := w.sayDead("--at", "orders/1/0", "--yes")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "nothing was changed: the route is handling orders/1/0 at this moment")
	require.Contains(t, r.err, "run the command again")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, exitOK, w.sayDead("--at", "orders/1/0", "--yes").code)
}

func TestBury_Asks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.known()
	w.keyed(order{"order-1", "good"})
	w.terminal, w.answer = true, "n\n"
	r := w.sayDead("--at", "orders/1/0")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "Is orders/1/0 dead for this route? Only a replay of its letter can undo it. [y/N]")
	require.Contains(t, r.err, "nothing was changed")
	w.answer = "y\n"
	require.Equal(t, exitOK, w.sayDead("--at", "orders/1/0").code)
	_, _, dead := w.states()
	require.Equal(t, 1, dead)
}

func TestBury_WrongUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.known()
	w.keyed(order{"order-1", "good"})
	for line, want := range map[string]string{
		"--group billing --route charge-order --yes":                                                   "no --at",
		"--at orders/1/0 --route charge-order --yes":                                                   "no --group",
		"--at orders/1/0 --group billing --yes":                                                        "no --route",
		"--at orders/x --group billing --route charge-order --yes":                                     "not topic/partition/offset",
		"--at orders/1/0 --group billing --route charge-order":                                         "there is no terminal to ask on",
		"--at orders/1/0 --group billing --route charge-order --yes 3/120":                             "takes flags only",
		"--at orders/1/0 --group billing --route charge-order --yes --id " + strings.Repeat("x", 1025): "more than 1024",
		"--at orders/1/0 --group billing --route charge-order --yes --dsn nowhere://":                  "no Postgres connection string",
	} {
		r := w.run(append([]string{"bury"}, strings.Fields(line)...)...)
		require.Equal(t, exitUsage, r.code, line)
		require.Contains(t, r.err, want, line)
	}
	for line, want := range map[string]string{
		"--at orders/1/1 --group billing --route charge-order --yes":                "ends before offset 1\n  fix: check partition and offset",
		"--at orders/9/1 --group billing --route charge-order --yes":                "no partition 9, it has 4\n  fix: check partition and offset",
		"--at order/1/0 --group billing --route charge-order --yes":                 `topic "order" does not exist`,
		"--at orders/1/0 --group billing --route charge-orders --yes":               "billing/charge-order",
		"--at orders/1/0 --group billings --route charge-order --yes":               `consumer group "billings"`,
		"--at orders/1/0 --group billing --route charge-order --yes -b 127.0.0.1:1": "no broker of 127.0.0.1:1 answers",
	} {
		r := w.run(append([]string{"bury"}, strings.Fields(line)...)...)
		require.Equal(t, exitFailed, r.code, line)
		require.Contains(t, r.err, want, line)
	}
	effected, skipped, dead := w.states()
	require.Equal(t, []int{0, 0, 0}, []int{effected, skipped, dead})
	r := newCLI(t).run("dead")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "did you mean 'headrace bury'?")
}

// A replay whose call is always failed is buried under its own place in the replay topic; the row stays one.
func TestBury_ReplayInTheReplayTopic(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t), newPayments(t)
	stop := w.startWith(p.route(t, consumer.Options{}))
	w.order("order-1", []byte("{"))
	require.Equal(t, record.Dead, w.next().Outcome)
	stop()
	w.ok("dlq", "replay", "--topic", "orders.dlq", "--at", "orders/1/0")
	r := w.sayDead("--at", "orders.billing.replay/1/0", "--yes")
	require.Equal(t, exitOK, r.code, r.err)
	w.startWith(p.route(t, consumer.Options{}))
	require.Equal(t, record.SettleInfo{Outcome: record.Dead, Replay: true}, outcomeOf(w.next()))
	_, _, dead := w.states()
	require.Equal(t, 1, dead)
	letters := kafkatest.ReadAll(t, w.brokers, dlq.DefaultTopic("orders"))
	require.Len(t, letters, 2)
}

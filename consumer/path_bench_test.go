package consumer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

// brokerOnly makes the test binary a broker with so many postings, and nothing else: neither its CPU nor theirs may count
// as the path's.
const brokerOnly = "HEADRACE_PATH_RECORDS"

// serveBroker prints its address once it has the postings, and serves until its input ends.
func serveBroker(postings string) error {
	n, err := strconv.Atoi(postings)
	if err != nil {
		return err
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "orders", "orders.billing.replay"))
	if err != nil {
		return err
	}
	defer cluster.Close()
	if err := producePostings(cluster.ListenAddrs(), n); err != nil {
		return err
	}
	fmt.Println(strings.Join(cluster.ListenAddrs(), ","))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func producePostings(brokers []string, n int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return err
	}
	defer client.Close()
	var failed atomic.Pointer[error]
	for i := range n {
		client.Produce(context.Background(), &kgo.Record{
			Topic: "orders", Key: strconv.AppendInt(nil, int64(i%1000), 10), Value: postingValue(i),
			Headers: []kgo.RecordHeader{{Key: record.UUIDHeader, Value: []byte(uuid.NewString())}},
		}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	if err := client.Flush(context.Background()); err != nil {
		return err
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// startBroker starts a broker with n postings in a process of its own, which ends with the benchmark.
func startBroker(b *testing.B, n int) []string {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), brokerOnly+"="+strconv.Itoa(n))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(b, err)
	return strings.Split(strings.TrimSpace(line), ",")
}

// posting is the event of the benchmarks, about 100 bytes of JSON.
type posting struct {
	Account int    `json:"account"`
	Amount  int64  `json:"amount"`
	Pad     string `json:"pad"`
}

func postingValue(i int) []byte {
	return fmt.Appendf(nil, `{"account":%d,"amount":%d,"pad":"0123456789012345678901234567890123456789012345678901234567"}`, i%1000, 1+i%100)
}

// BenchmarkPath takes records from a broker in another process through the Source, the Router and the whole stack of a
// route as a consumer builds it, metrics included; the inbox settles at once and the handler only returns. CPU, time and
// allocations are this process's, for one record. Give it 200000x or more: the start is in it too.
func BenchmarkPath(b *testing.B) {
	for _, maxBatch := range []int{1, 500} {
		b.Run(fmt.Sprintf("MaxBatch=%d", maxBatch), func(b *testing.B) { benchmarkPath(b, maxBatch) })
	}
}

func benchmarkPath(b *testing.B, maxBatch int) {
	p := newPath(b, startBroker(b, b.N), b.N, Options{MaxBatch: maxBatch})
	b.ReportAllocs()
	b.ResetTimer()
	before := processCPU()
	p.run(b)
	used := processCPU() - before
	b.StopTimer()
	b.ReportMetric(float64(used.Nanoseconds())/1e3/float64(b.N), "µs-cpu/record")
	b.ReportMetric(float64(b.N)/float64(p.inbox.runs.Load()), "records/message")
}

// path is a consumer without its database.
type path struct {
	source *kafka.Source
	router *message.Router
	inbox  *settling
}

// newStack makes a consumer of one route without its database, and the route's stack around an inbox that settles n records.
func newStack(tb testing.TB, brokers []string, n int, o Options) (*Consumer, *middleware.Route, *settling) {
	tb.Helper()
	pool, err := pgxpool.New(tb.Context(), "postgres://nobody@127.0.0.1:1/none") // connects only when it is asked
	require.NoError(tb, err)
	tb.Cleanup(pool.Close)
	c, err := New(Config{Brokers: brokers, Group: "billing", DB: pool, Logger: slog.New(slog.DiscardHandler)}, Route[posting]{
		Name: "ledger", Topic: "orders", Options: o,
		Apply: func(context.Context, pgx.Tx, Event[posting]) error { return nil },
	})
	require.NoError(tb, err)
	in := &settling{hooks: c.hooks, left: make(chan int, 1), done: make(chan struct{})}
	in.left <- n
	rt := c.stack(c.specs[0], nil, nil, nil)
	rt.Inbox, rt.Graves = in, in
	tb.Cleanup(rt.Gates.Close)
	return c, rt, in
}

func newPath(b *testing.B, brokers []string, n int, o Options) *path {
	b.Helper()
	c, rt, in := newStack(b, brokers, n, o)
	stack, err := middleware.Stack(rt)
	require.NoError(b, err)
	p := &path{inbox: in}
	p.source, err = kafka.NewSource(c.sourceConfig())
	require.NoError(b, err)
	p.router, err = message.NewRouter(c.routerConfig(), newRouterLogger(c.cfg.Logger, new(atomic.Bool), nil))
	require.NoError(b, err)
	s, sub := c.specs[0], c.subscription(c.specs[0], rt, nil)
	sub.Started = nil
	e := &engine{c: c, router: p.router, source: p.source}
	e.handle(s.name, s.topic, e.source.Subscriber(sub), s, stack)
	sub.Replay = true
	e.handle(replayHandler(s.name), s.replay, e.source.Subscriber(sub), s, stack)
	return p
}

// run consumes until all records are settled.
func (p *path) run(b *testing.B) {
	routed := make(chan error, 1)
	go func() { routed <- p.router.Run(context.WithoutCancel(b.Context())) }()
	<-p.router.Running()
	<-p.inbox.done
	b.StopTimer()
	require.NoError(b, p.source.Close())
	require.NoError(b, p.router.Close())
	require.NoError(b, <-routed)
}

// settling is an inbox that runs each handler and settles its record at once, and tells the hooks what dedup would.
type settling struct {
	hooks *record.Hooks
	runs  atomic.Int64
	left  chan int
	done  chan struct{}
}

func (in *settling) Run(ctx context.Context, rs []*record.Record, work dedup.Work) {
	in.runs.Add(1)
	for _, r := range rs {
		began := time.Now()
		r.Begin()
		r.Err = work.(dedup.Apply)(ctx, nil, r)
		r.End()
		in.hooks.OnAttempt(record.AttemptInfo{Route: "ledger", Took: time.Since(began), Attempt: r.Attempts + 1})
	}
	in.hooks.OnInbox(record.InboxInfo{Route: "ledger", Answer: dedup.Fresh.String(), Records: len(rs)})
	in.hooks.OnGroup(record.GroupInfo{Route: "ledger", Records: len(rs), Result: "committed"})
	n := 0
	for _, r := range rs {
		if r.Err == nil && r.Settle(record.Effected) {
			n++
		}
	}
	left := <-in.left - n
	if left == 0 {
		close(in.done)
	}
	in.left <- left
}

func (in *settling) Bury(context.Context, *record.Record, dedup.Grave) (dedup.Answer, error) {
	return dedup.Buried, nil
}

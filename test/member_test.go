package e2e

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/kafka/stock"
	"github.com/headrace/headrace/outbox"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// memberEnv turns the test binary into a member of a consumer group; its value is a setup.
const memberEnv = "HEADRACE_E2E_MEMBER"

// setup is what a member is made of, in this process or another.
type setup struct {
	Brokers    []string
	Topic      string
	Group      string
	DSN        string
	Routes     []string
	Kind       kind
	Store      dedup.Store
	Session    time.Duration
	Commit     time.Duration // the interval of commits, 200 ms if it is zero
	Eager      bool
	Stock      bool // under watermill-kafka's Subscriber
	DrainGrace time.Duration
	Forwards   bool // the outbox
	Caller     caller
	Attempts   int
	Park       *parking.Policy
	Options    consumer.Options       `json:"-"`
	Tune       func(*consumer.Config) `json:"-"`
}

// setup is of a member with the defaults, but quick to notice and to commit.
func (w *world) setup() setup {
	s := setup{Brokers: w.brokers, Topic: w.topic, Group: w.group, DSN: w.dsn, Routes: w.routes, Kind: w.kind, Store: w.store}
	if w.payments != nil {
		s.Caller.URL = w.payments.URL
	}
	return s
}

func (s setup) config(pool *pgxpool.Pool, log *slog.Logger) consumer.Config {
	cfg := consumer.Config{
		Brokers: s.Brokers, Group: s.Group, DB: pool, CreateDeadLetterTopics: true,
		SessionTimeout: s.Session, HeartbeatInterval: 300 * time.Millisecond, CommitInterval: 200 * time.Millisecond,
		DrainGrace: s.DrainGrace, Logger: log,
	}
	if s.Commit > 0 {
		cfg.CommitInterval = s.Commit
	}
	if s.Eager {
		cfg.Balancer = kafka.Eager
	}
	if s.Stock {
		cfg.Transport = stock.Transport()
	}
	if s.Forwards {
		cfg.Outbox = &outbox.Config{AlarmRows: 500, StatsInterval: time.Second, Lease: 3 * time.Second}
	}
	if s.Tune != nil {
		s.Tune(&cfg)
	}
	return cfg
}

// scripted are the routes that do what the records say.
func (s setup) scripted() []consumer.AnyRoute {
	routes := make([]consumer.AnyRoute, len(s.Routes))
	if s.Caller.URL != "" {
		d := s.Caller.dependency()
		do := s.Caller.charges(s.Caller.client(d))
		for i, name := range s.Routes {
			routes[i] = s.charging(name, d, do)
		}
		return routes
	}
	for i, name := range s.Routes {
		routes[i] = s.scriptedRoute(name)
	}
	return routes
}

func (s setup) options() consumer.Options {
	o := s.Options
	o.Store = s.Store
	if s.Park != nil {
		o.Park, o.Attempts = s.Park, s.Attempts
	}
	return o
}

// route is one that does something of its own.
func (s setup) route(name string, apply func(context.Context, pgx.Tx, consumer.Event[order]) error) consumer.Route[order] {
	return consumer.Route[order]{Name: name, Topic: s.Topic, Apply: apply, Options: s.options()}
}

// member is a consumer in this process.
type member struct {
	t    *testing.T
	c    *consumer.Consumer
	stop context.CancelFunc
	err  error         // what Run returned, once gone is closed
	gone chan struct{} // closed when everything of it is
	logs *logs
}

// start runs a member with the scripted routes.
func (w *world) start(s setup) *member {
	w.t.Helper()
	return w.run(s, nil, s.scripted()...)
}

// run runs a member with these hooks and routes. The test's end stops it if the test has not.
func (w *world) run(s setup, hooks *record.Hooks, routes ...consumer.AnyRoute) *member {
	w.t.Helper()
	pool, err := pgxpool.New(w.t.Context(), s.DSN)
	require.NoError(w.t, err)
	m := &member{t: w.t, gone: make(chan struct{}), logs: &logs{out: w.t.Output()}}
	cfg := s.config(pool, slog.New(slog.NewTextHandler(m.logs, &slog.HandlerOptions{Level: slog.LevelInfo})))
	cfg.Hooks = hooks
	m.c, err = consumer.New(cfg, routes...)
	require.NoError(w.t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	m.stop = stop
	go func() {
		defer close(m.gone)
		defer pool.Close()
		m.err = m.c.Run(ctx)
	}()
	w.t.Cleanup(func() {
		stop()
		<-m.gone
	})
	return m
}

// end stops the member as a signal would and gives what Run returned.
func (m *member) end() error {
	m.t.Helper()
	m.stop()
	return m.ended()
}

// ended waits until Run has returned by itself.
func (m *member) ended() error {
	m.t.Helper()
	select {
	case <-m.gone:
		return m.err
	case <-time.After(patience):
		require.FailNow(m.t, "Run does not return")
		return nil
	}
}

// ready is what the member says of its readiness; the test fails if it has ended.
func (m *member) ready() error {
	m.t.Helper()
	if closed(m.gone) {
		require.FailNow(m.t, "Run has returned", "%v", m.err)
	}
	return m.c.Ready()
}

// quit stops the member and requires that it ended well.
func (m *member) quit() {
	m.t.Helper()
	require.NoError(m.t, m.end())
}

// process is a member in a process of its own. It ends with this one.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Closer
}

// spawn starts a member in a process.
func (w *world) spawn(s setup) *process {
	w.t.Helper()
	text, err := json.Marshal(s)
	require.NoError(w.t, err)
	p := &process{t: w.t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), memberEnv+"="+string(text))
	p.cmd.Stderr = w.t.Output()
	p.in, err = p.cmd.StdinPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, p.cmd.Start())
	w.t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill() // SIGKILL ends a stopped process too
			_ = p.cmd.Wait()
		}
	})
	return p
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// kill ends the process with SIGKILL, in whatever it is doing.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	_ = p.cmd.Wait() // it says "killed"
}

// quit asks the process to stop and requires that it does so in order.
func (p *process) quit() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	require.NoError(p.t, p.cmd.Wait())
}

// runMember is the main function of a member's process.
func runMember(text string) int {
	var s setup
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		panic(err)
	}
	go func() { // the parent's end, however it comes, is the end of the input
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if err := serve(ctx, s); err != nil {
		slog.Error("member", "err", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, s setup) error {
	pool, err := pgxpool.New(ctx, s.DSN)
	if err != nil {
		return err
	}
	defer pool.Close()
	c, err := consumer.New(s.config(pool, slog.New(slog.NewTextHandler(os.Stderr, nil))), s.scripted()...)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// metric is the sum of a gauge's or a counter's series at this moment.
func (m *member) metric(name string) (sum float64) {
	m.t.Helper()
	page := httptest.NewRecorder()
	m.c.Handler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	found := false
	for line := range strings.Lines(page.Body.String()) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		n, err := strconv.ParseFloat(value[strings.LastIndex(value, " ")+1:], 64)
		require.NoError(m.t, err)
		sum, found = sum+n, true
	}
	require.True(m.t, found, "no series of %s in\n%s", name, page.Body)
	return sum
}

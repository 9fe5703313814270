// Package member is a process of the consumer under attack: every kind of route, both stores, the outbox, with handlers
// that do what the records say.
package member

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/kafka/stock"
	"github.com/headrace/headrace/outbox"
)

// Env turns the command into a member; its value is a Config.
const Env = "HEADRACE_ATTACK_MEMBER"

// Config is what a member is made of.
type Config struct {
	Brokers []string
	// Proxies are where to dial instead of a broker's address.
	Proxies map[string]string
	DSN     string
	Group   string
	// Prefix begins the names of the run's topics.
	Prefix string
	// InstanceID makes it a static member.
	InstanceID string
	// Balancer is how the members share the partitions.
	Balancer kafka.Balancer
	// Stock runs under watermill-kafka's own Subscriber.
	Stock bool
	// Service is where the service is that a route calls.
	Service string
	// Bug is what is wrong with the handlers of this deploy, "" for nothing.
	Bug Bug
	// InboxRetention is how long the inbox remembers, 0 for the default.
	InboxRetention time.Duration
}

// Main runs a member until SIGTERM, or until its input ends, as it does with whoever started it. The first line that it
// prints is where its metrics are.
func Main(text string) int {
	var cfg Config
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		panic(err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if err := serve(ctx, cfg); err != nil {
		slog.Error("member", "err", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, cfg Config) error {
	pool, err := pgxpool.New(ctx, cfg.DSN)
	if err != nil {
		return err
	}
	defer pool.Close()
	calling, err := call(cfg)
	if err != nil {
		return err
	}
	c, err := consumer.New(cfg.consumer(pool), append(routes(cfg), calling)...)
	if err != nil {
		return err
	}
	stop, err := metrics(ctx, c)
	if err != nil {
		return err
	}
	defer stop()
	return c.Run(ctx)
}

// metrics serves them, and profiles beside them, and says where.
func metrics(ctx context.Context, c *consumer.Consumer) (stop func(), err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", c.Handler())
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }() // it says that it was closed
	_, err = fmt.Fprintln(os.Stdout, l.Addr())
	return func() { _ = server.Close() }, err
}

// liveHeap is what the last collection has found in use: of all that is measured of memory what says most about a leak.
var liveHeap = regexp.MustCompile(`^/gc/heap/live:bytes$`)

// consumer is a configuration with the defaults, but quick to notice: a session is as short as brokers allow.
func (cfg Config) consumer(pool *pgxpool.Pool) consumer.Config {
	registry := prometheus.NewRegistry()
	live := collectors.WithGoCollectorRuntimeMetrics(collectors.GoRuntimeMetricsRule{Matcher: liveHeap})
	registry.MustRegister(collectors.NewGoCollector(live), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	c := consumer.Config{
		Brokers: cfg.Brokers, Group: cfg.Group, DB: pool, CreateDeadLetterTopics: true, Dial: cfg.dial,
		SessionTimeout: 6 * time.Second, HeartbeatInterval: 500 * time.Millisecond, CommitInterval: 500 * time.Millisecond,
		DrainGrace: 3 * time.Second, HardGrace: 2 * time.Second, CommitReserve: 2 * time.Second,
		RebalanceTimeout: 20 * time.Second, MaxPollInterval: time.Minute, DeadLetterTimeout: 5 * time.Second,
		Outbox: &outbox.Config{Timeout: 5 * time.Second, Lease: 3 * time.Second}, Registry: registry,
		InboxRetention: cfg.InboxRetention, OnOffsetLoss: kafka.LossOldest, Balancer: cfg.Balancer, InstanceID: cfg.InstanceID,
	}
	if cfg.Stock {
		c.Transport = stock.Transport()
	}
	return c
}

func (cfg Config) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if proxy, ok := cfg.Proxies[addr]; ok {
		addr = proxy
	}
	dialer := net.Dialer{Timeout: 5 * time.Second}
	return dialer.DialContext(ctx, network, addr)
}

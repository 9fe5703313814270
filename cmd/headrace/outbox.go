package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/outbox"
	"github.com/headrace/headrace/record"
)

func newOutbox(s streams) *cobra.Command {
	return group(&cobra.Command{
		Use:   "outbox",
		Short: "Send what handlers have published in their transactions",
		Long: `Handlers publish events into headrace.outbox, in the transactions of their effects. 'run' sends them to the brokers and
deletes what is confirmed; a consumer with Config.Outbox does the same. 'status' tells how much waits.`,
		Example: `  headrace outbox run --metrics :9102
  headrace outbox status`,
	}, newOutboxRun(s), newOutboxStatus(s))
}

type outboxRunFlags struct {
	kafka   kafkaFlags
	dsn     dsnFlag
	metrics string
}

func newOutboxRun(s streams) *cobra.Command {
	var f outboxRunFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Send events until it is told to end",
		Long: `Sends the events of the outbox to the brokers, those of a key in order, each until all in-sync replicas have it, and
deletes what is confirmed. Run as many as you like: one sends, another one goes on when it is gone. What is sent twice,
after a crash, has the same id.

It waits for brokers and database for as long as they are away, and ends in order on SIGTERM.`,
		Example: `  HEADRACE_BROKERS=kafka-1:9092 DATABASE_URL=postgres://billing@db/billing headrace outbox run
  headrace outbox run --metrics :9102`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), s) },
	}
	cmd.Flags().SortFlags = false // the important ones first
	cmd.Flags().StringVar(&f.metrics, "metrics", "", "serve /metrics at this `address`, as in :9102 for this machine alone, or 0.0.0.0:9102")
	f.dsn.register(cmd.Flags(), "the database with the outbox")
	f.kafka.register(cmd.Flags())
	return cmd
}

func (f *outboxRunFlags) run(ctx context.Context, s streams) (err error) {
	client, err := f.kafka.config(s)
	if err != nil {
		return err
	}
	pool, closes, err := f.dsn.open(ctx, s)
	if err != nil {
		return err
	}
	defer closes()
	collector, hooks := consumer.OutboxMetrics()
	if f.metrics != "" {
		end, err := serveMetrics(f.metrics, collector)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	hooks.OnReport = record.LogReports(slog.New(slog.NewTextHandler(s.err, nil)))
	forwarder, err := outbox.NewForwarder(pool, outbox.Config{Client: client, Hooks: &hooks})
	if err != nil {
		return err
	}
	fmt.Fprintln(s.err, "sending the events of headrace.outbox")
	if err := forwarder.Run(ctx); err != nil {
		return err
	}
	fmt.Fprintln(s.err, "ended")
	return nil
}

// listen takes an address without a host for one of this machine alone: who wants to be seen from elsewhere says so.
func listen(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.Listen("tcp", net.JoinHostPort(host, port))
}

// serveMetrics serves until end is called.
func serveMetrics(address string, collector prometheus.Collector) (end func() error, err error) {
	listener, err := listen(address)
	if err != nil {
		return nil, usagef("--metrics %s: %w", address, err).fix("name an address of this machine that is free, as in :9102")
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: reachWithin}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // until it is closed
	}()
	return func() error {
		defer func() { <-done }()
		return server.Close()
	}, nil
}

// waiting is what 'outbox status --json' prints.
type waiting struct {
	Rows     int64   `json:"rows"`
	Bytes    int64   `json:"bytes"`
	Oldest   float64 `json:"oldest_seconds"`
	Snapshot float64 `json:"snapshot_seconds"`
}

func newOutboxStatus(s streams) *cobra.Command {
	var dsn dsnFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Tell how many events wait, and for how long",
		Long: `Tells how many events wait to be sent, their size, the age of the oldest, and that of the oldest transaction in the
database, which keeps sent ones from being cleared away (0 if the role may not see the sessions of others).`,
		Example: `  headrace outbox status
  headrace outbox status --json | jq .oldest_seconds`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pool, closes, err := dsn.open(cmd.Context(), s)
			if err != nil {
				return err
			}
			defer closes()
			i, err := outbox.Size(cmd.Context(), pool)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(s.out).Encode(waiting{i.Rows, i.Bytes, i.Oldest.Seconds(), i.Snapshot.Seconds()})
			}
			return tellWaiting(s, i)
		},
	}
	dsn.register(cmd.Flags(), "the database with the outbox")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func tellWaiting(s streams, i record.OutboxInfo) error {
	_, err := fmt.Fprintf(s.out, "events                   %s\nbytes                    %s\noldest                   %s\noldest open transaction  %s\n",
		strconv.FormatInt(i.Rows, 10), strconv.FormatInt(i.Bytes, 10), i.Oldest.Round(time.Millisecond), i.Snapshot.Round(time.Millisecond))
	return err
}

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/internal/health"
	"github.com/headrace/headrace/internal/redact"
	"github.com/headrace/headrace/outbox"
	"github.com/headrace/headrace/record"
)

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

It waits for brokers and database for as long as they are away, and ends in order on SIGTERM.

With --metrics it serves, over HTTP:

  /metrics  its metrics, for Prometheus
  /livez    200 with "ok" while it should go on; 503, with the reason, once it hangs and is to be restarted
  /readyz   200 with "ok" while it sends, or may once another one ends, and the database and a broker have answered in the
            last 30 seconds; else 503, with a reason a line`,
		Example: `  HEADRACE_BROKERS=kafka-1:9092 DATABASE_URL=postgres://billing@db/billing headrace outbox run
  headrace outbox run --metrics :9102`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), s) },
	}
	cmd.Flags().SortFlags = false // the important ones first
	cmd.Flags().StringVar(&f.metrics, "metrics", "", "serve /metrics, /livez and /readyz at this `address`, as in :9102 for this machine alone, or 0.0.0.0:9102")
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
	hooks.OnReport = record.LogReports(slog.New(slog.NewTextHandler(s.err, nil)))
	forwarder, err := outbox.NewForwarder(pool, outbox.Config{Client: client, Hooks: &hooks})
	if err != nil {
		return err
	}
	if f.metrics != "" {
		at, end, wrong := serve(f.metrics, probes(forwarder, collector))
		if wrong != nil {
			return wrong
		}
		defer func() { err = errors.Join(err, end()) }()
		fmt.Fprintf(s.err, "metrics and health: http://%s/metrics /livez /readyz\n", at)
	}
	fmt.Fprintln(s.err, "sending the events of headrace.outbox")
	if err := forwarder.Run(ctx); err != nil {
		return err
	}
	fmt.Fprintln(s.err, "ended")
	return nil
}

// probes are what is served of a forwarder.
func probes(f *outbox.Forwarder, metrics prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	return health.Probes{
		Live:    func() error { return redact.Of(f.Live(), nil) },
		Ready:   func() error { return redact.Of(f.Ready(), nil) },
		Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
	}.Handler()
}

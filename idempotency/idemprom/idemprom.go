// Package idemprom gives the metrics of package idempotency to Prometheus.
//
//	metrics := idemprom.New()
//	registry.MustRegister(metrics)
//	keys, err := idempotency.New(pool, idempotency.Config{Principal: tenantOf, Hooks: metrics.Hooks()})
//	…
//	go keys.Run(ctx) // looks at the table each SweepEvery; what is unknown is known from there
//
// The metrics stand in docs/idempotency.md. Labels are bounded: routes are named in the program, and outcomes are
// idempotency.Outcomes.
package idemprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headrace/headrace/idempotency"
)

const namespace = "headrace_idempotency"

// durations are from a hundred microseconds to a minute and a half, past the longest that a handler should take.
var durations = prometheus.ExponentialBuckets(0.0001, 4, 11)

// Metrics are a collector that is filled by its Hooks. It is safe for concurrent use; several Keys may share it if their
// routes have different names.
type Metrics struct {
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	inFlight *prometheus.GaugeVec
	swept    prometheus.Counter
	table    table
}

var _ prometheus.Collector = (*Metrics)(nil)

// New makes Metrics, to be registered by the caller.
func New() *Metrics {
	return &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "requests_total", Help: "Keyed requests by what became of them.",
		}, []string{"route", "outcome"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "request_duration_seconds", Help: "Time of one, its handler's included.", Buckets: durations,
		}, []string{"route"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "in_flight_requests", Help: "Keyed requests that this process works on at this moment.",
		}, []string{"route"}),
		swept: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "swept_keys_total", Help: "Keys past their retention that this process has deleted.",
		}),
		table: newTable(),
	}
}

// Hooks fill m. They are for idempotency.Config.
func (m *Metrics) Hooks() idempotency.Hooks {
	return idempotency.Hooks{
		OnRoute:   m.onRoute,
		OnBegin:   func(route string) { m.inFlight.WithLabelValues(route).Inc() },
		OnRequest: m.onRequest,
		OnStats:   m.table.set,
		OnSweep:   func(keys int64) { m.swept.Add(float64(keys)) },
	}
}

// onRoute makes a route's series, at zero: an alert on a rate must not miss the first because its series began at one.
func (m *Metrics) onRoute(route string) {
	for _, o := range idempotency.Outcomes {
		m.requests.WithLabelValues(route, o)
	}
	m.took.WithLabelValues(route)
	m.inFlight.WithLabelValues(route)
	m.table.add(route)
}

func (m *Metrics) onRequest(i idempotency.RequestInfo) {
	m.inFlight.WithLabelValues(i.Route).Dec()
	m.requests.WithLabelValues(i.Route, i.Outcome).Inc()
	m.took.WithLabelValues(i.Route).Observe(i.Took.Seconds())
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.took, m.inFlight, m.swept, &m.table}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
}

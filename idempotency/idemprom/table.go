package idemprom

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headrace/headrace/idempotency"
)

// table is what was found in it at the last look.
type table struct {
	running, unknown, oldest *prometheus.Desc

	mu    sync.Mutex
	ours  map[string]bool // the routes of this process
	found map[string]idempotency.Stats
}

func newTable() table {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, []string{"route"}, nil)
	}
	return table{
		running: desc("running_keys", "Keys of External in progress, in all processes, at the last look."),
		unknown: desc("unknown_keys", "Keys of which nobody knows whether they were done, at the last look."),
		oldest:  desc("unknown_oldest_seconds", "For how long the first of them has been unknown."),
		ours:    map[string]bool{}, found: map[string]idempotency.Stats{},
	}
}

func (t *table) add(route string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ours[route] = true
	t.found[route] = idempotency.Stats{Route: route}
}

// set leaves no series of a route that only another process knows, once it has nothing there any more. Ours are looked for
// by their own Keys.
func (t *table) set(found []idempotency.Stats) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for route := range t.found {
		if !t.ours[route] {
			delete(t.found, route)
		}
	}
	for _, s := range found {
		t.found[s.Route] = s
	}
}

// Describe implements prometheus.Collector.
func (t *table) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{t.running, t.unknown, t.oldest} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (t *table) Collect(ch chan<- prometheus.Metric) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.found {
		ch <- prometheus.MustNewConstMetric(t.running, prometheus.GaugeValue, float64(s.Running), s.Route)
		ch <- prometheus.MustNewConstMetric(t.unknown, prometheus.GaugeValue, float64(s.Unknown), s.Route)
		ch <- prometheus.MustNewConstMetric(t.oldest, prometheus.GaugeValue, s.Oldest.Seconds(), s.Route)
	}
}

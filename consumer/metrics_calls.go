package consumer

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/record"
)

// calls are the metrics of the dependencies that the routes call.
type calls struct {
	collected

	total       *prometheus.CounterVec
	took        *prometheus.HistogramVec
	trips       *prometheus.CounterVec
	state, open *prometheus.Desc
	around      aroundCalls

	routes   []string
	names    []string // of the dependencies
	breakers []*breaker
}

func newCalls(specs []spec, others ...*downstream.Dependency) *calls {
	c := &calls{routes: namesOf(specs)}
	c.total = c.counter("calls_total", "Calls to dependencies by outcome; the route is empty for calls outside of one.", "dependency", "route", "outcome")
	c.took = c.histogram("call_duration_seconds", "Time of one call that was sent, without waits for its turn.", latencies, "dependency")
	c.trips = c.counter("breaker_trips_total", "How often a closed breaker has opened.", "dependency")
	c.state = c.desc("breaker_state", "gauge", "1 for the state that the breaker is in.", "dependency", "state")
	c.open = c.desc("breaker_open_seconds_total", "counter", "Time for which a breaker was not closed.", "dependency")
	c.around.init(&c.collected)
	c.collectors = append(c.collectors, breakerCollector{c})
	for _, s := range specs {
		c.preset(s)
	}
	for _, d := range others {
		c.presetDependency(d)
		for _, o := range record.CallOutcomes {
			c.total.WithLabelValues(d.Name(), "", o)
		}
	}
	return c
}

func (c *calls) preset(s spec) {
	name := s.dependency()
	if name == "" {
		return
	}
	for _, o := range record.CallOutcomes {
		c.total.WithLabelValues(name, s.name, o)
	}
	c.presetDependency(s.call.dependency)
	for _, o := range s.call.calls {
		c.presetDependency(o.Dependency)
	}
}

// presetDependency makes the series of one that is called, by a route or elsewhere.
func (c *calls) presetDependency(d *downstream.Dependency) {
	name := d.Name()
	if c.find(name) != nil {
		return
	}
	c.took.WithLabelValues(name)
	c.trips.WithLabelValues(name)
	c.around.preset(name)
	c.names = append(c.names, name)
	c.breakers = append(c.breakers, &breaker{dependency: d})
}

func (c *calls) find(name string) *breaker {
	for _, b := range c.breakers {
		if b.dependency.Name() == name {
			return b
		}
	}
	return nil
}

func (c *calls) onCall(i record.CallInfo) {
	dependency, route := bounded(i.Dependency, c.names), i.Route
	if route != "" {
		route = bounded(route, c.routes) // of another consumer of this process, perhaps
	}
	c.total.WithLabelValues(dependency, route, bounded(i.Outcome, record.CallOutcomes[:])).Inc()
	if i.Outcome != record.CallRefused {
		c.took.WithLabelValues(dependency).Observe(i.Took.Seconds())
	}
}

func (c *calls) onBreaker(i record.BreakerInfo) {
	b := c.find(i.Dependency)
	if b == nil {
		return
	}
	if i.From == record.BreakerClosed && i.To == record.BreakerOpen {
		c.trips.WithLabelValues(i.Dependency).Inc()
	}
	b.changed(i.To)
}

// watch lets the consumer hear of every dependency, until stop is called.
func (c *calls) watch(hooks *record.Hooks) (stop func()) {
	removes := make([]func(), len(c.breakers))
	for i, b := range c.breakers {
		removes[i] = b.watch(hooks)
	}
	return func() {
		for _, remove := range removes {
			remove()
		}
	}
}

// breaker adds up for how long the breaker of a dependency was not closed. It counts by its own clock alone, so that the
// sum never falls.
type breaker struct {
	dependency *downstream.Dependency

	mu     sync.Mutex
	heard  int // changes
	since  time.Time
	before time.Duration // that ended
}

func (b *breaker) watch(hooks *record.Hooks) (stop func()) {
	b.mu.Lock()
	heard := b.heard
	b.mu.Unlock()
	remove := b.dependency.Observe(&record.Hooks{
		OnCall: hooks.OnCall, OnBreaker: hooks.OnBreaker, OnRetry: hooks.OnRetry, OnDegraded: hooks.OnDegraded,
		OnCallInTransaction: hooks.OnCallInTransaction, OnReport: hooks.OnReport,
	})
	// It may be open already: somebody else calls it too. A change that was heard since knows better. The lock is not held
	// while the dependency is asked, which may be about to tell of a change.
	state := b.dependency.State()
	b.mu.Lock()
	if b.heard == heard {
		b.set(state)
	}
	b.mu.Unlock()
	return func() {
		remove()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.set(record.BreakerClosed) // nobody listens any more
	}
}

func (b *breaker) changed(to string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard++
	b.set(to)
}

// set: callers hold mu.
func (b *breaker) set(state string) {
	switch closed := state == record.BreakerClosed; {
	case closed && !b.since.IsZero():
		b.before, b.since = b.before+time.Since(b.since), time.Time{}
	case !closed && b.since.IsZero():
		b.since = time.Now()
	}
}

// open is for how long in all, until now.
func (b *breaker) open() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.since.IsZero() {
		return b.before
	}
	return b.before + time.Since(b.since)
}

// breakerCollector asks the breakers when somebody looks: an open one goes on being open, and half open by the clock.
type breakerCollector struct{ c *calls }

func (b breakerCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- b.c.state
	ch <- b.c.open
	b.c.around.describe(ch)
}

func (b breakerCollector) Collect(ch chan<- prometheus.Metric) {
	for _, br := range b.c.breakers {
		name, state := br.dependency.Name(), br.dependency.State()
		for _, each := range record.BreakerStates {
			ch <- prometheus.MustNewConstMetric(b.c.state, prometheus.GaugeValue, oneIf(each == state), name, each)
		}
		ch <- prometheus.MustNewConstMetric(b.c.open, prometheus.CounterValue, br.open().Seconds(), name)
		b.c.around.collect(ch, br.dependency)
	}
}

// dependency is the name of what the route calls, "" if it calls nobody.
func (s spec) dependency() string {
	if s.call == nil || s.call.dependency == nil {
		return ""
	}
	return s.call.dependency.Name()
}

package consumer

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Metric is one metric that a consumer exports.
type Metric struct {
	// Name is the whole one. The series of a histogram have the suffixes _bucket, _sum and _count.
	Name string
	// Type is "counter", "gauge" or "histogram".
	Type string
	// Help is what the scrape says about it.
	Help string
	// Labels are the names of its labels.
	Labels []string
}

// Metrics are all that a consumer exports, by name, also those that have no series yet: a dashboard or an alert that
// names another one shows nothing.
func Metrics() []Metric {
	all := slices.Concat(newMetrics(nil).list, newPartitions(nil).list)
	slices.SortFunc(all, func(a, b Metric) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// collected are metrics that are registered as a whole.
type collected struct {
	list       []Metric
	collectors []prometheus.Collector
}

var _ prometheus.Collector = (*collected)(nil)

// Describe implements prometheus.Collector.
func (c *collected) Describe(ch chan<- *prometheus.Desc) {
	for _, each := range c.collectors {
		each.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (c *collected) Collect(ch chan<- prometheus.Metric) {
	for _, each := range c.collectors {
		each.Collect(ch)
	}
}

func (c *collected) include(other collected) {
	c.list = append(c.list, other.list...)
	c.collectors = append(c.collectors, other.collectors...)
}

func (c *collected) note(name, of, help string, labels []string) {
	c.list = append(c.list, Metric{Name: prometheus.BuildFQName(namespace, "", name), Type: of, Help: help, Labels: labels})
}

func (c *collected) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c.note(name, "counter", help, labels)
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	c.collectors = append(c.collectors, v)
	return v
}

func (c *collected) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	c.note(name, "gauge", help, labels)
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	c.collectors = append(c.collectors, v)
	return v
}

func (c *collected) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	c.note(name, "histogram", help, labels)
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: buckets,
	}, labels)
	c.collectors = append(c.collectors, v)
	return v
}

// desc is of a metric that is made when somebody looks.
func (c *collected) desc(name, of, help string, labels ...string) *prometheus.Desc {
	c.note(name, of, help, labels)
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

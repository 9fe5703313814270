package consumer

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/record"
)

// aroundCalls are the metrics of what stands around calls: further tries, places, substitutes.
type aroundCalls struct {
	retries, degraded, inTransaction *prometheus.CounterVec
	amplification, inUse             *prometheus.Desc
}

func (a *aroundCalls) init(c *collected) {
	a.retries = c.counter("retry_attempts_total", "Further tries of calls outside of a route by outcome, or why there was none.", "dependency", "outcome")
	a.amplification = c.desc("retry_amplification_ratio", "gauge", "Requests for each operation, over the last half to one minute.", "dependency")
	a.inUse = c.desc("bulkhead_in_use", "gauge", "Places of the bulkhead that are taken at this moment.", "dependency")
	a.degraded = c.counter("degraded_total", "Reads that got a substitute, by where that came from and why.", "dependency", "source", "reason")
	a.inTransaction = c.counter("calls_in_transaction_total", "Calls under a context that carries the inbox's transaction.", "dependency")
}

// retryOutcomes are what becomes of a call that has failed.
var retryOutcomes = func() []string {
	outcomes := []string{record.RetryRepeated, record.RetrySucceeded}
	for _, why := range downstream.Reasons {
		outcomes = append(outcomes, string(why))
	}
	return outcomes
}()

func (a *aroundCalls) preset(dependency string) {
	for _, o := range retryOutcomes {
		a.retries.WithLabelValues(dependency, o)
	}
	for _, source := range record.DegradedSources {
		for _, reason := range record.DegradedReasons {
			a.degraded.WithLabelValues(dependency, source, reason)
		}
	}
	a.inTransaction.WithLabelValues(dependency)
}

func (a *aroundCalls) describe(ch chan<- *prometheus.Desc) {
	ch <- a.amplification
	ch <- a.inUse
}

func (a *aroundCalls) collect(ch chan<- prometheus.Metric, d *downstream.Dependency) {
	ch <- prometheus.MustNewConstMetric(a.amplification, prometheus.GaugeValue, d.Amplification(), d.Name())
	ch <- prometheus.MustNewConstMetric(a.inUse, prometheus.GaugeValue, float64(d.InUse()), d.Name())
}

func (c *calls) onRetry(i record.RetryInfo) {
	c.around.retries.WithLabelValues(bounded(i.Dependency, c.names), bounded(i.Outcome, retryOutcomes)).Inc()
}

func (c *calls) onDegraded(i record.DegradedInfo) {
	c.around.degraded.WithLabelValues(bounded(i.Dependency, c.names), bounded(i.Source, record.DegradedSources[:]),
		bounded(i.Reason, record.DegradedReasons[:])).Inc()
}

func (c *calls) onInTransaction(i record.CallInfo) {
	c.around.inTransaction.WithLabelValues(bounded(i.Dependency, c.names)).Inc()
}

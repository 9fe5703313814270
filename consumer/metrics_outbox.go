package consumer

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headrace/headrace/record"
)

// outboxMetrics are of a forwarder; they stay at zero in a process without one.
type outboxMetrics struct {
	collected

	confirmed, failed             prometheus.Counter
	rows, bytes, oldest, snapshot prometheus.Gauge
}

func newOutboxMetrics() *outboxMetrics {
	m := &outboxMetrics{}
	events := m.counter("outbox_events_total", "Events of the outbox by what became of their sending: failed ones are sent again.", "result")
	m.confirmed, m.failed = events.WithLabelValues("confirmed"), events.WithLabelValues("failed")
	m.rows = m.gauge("outbox_rows", "Events that wait in the outbox.").WithLabelValues()
	m.bytes = m.gauge("outbox_bytes", "Size of the records that they are to become, uncompressed.").WithLabelValues()
	m.oldest = m.gauge("outbox_oldest_seconds", "Age of the oldest of them.").WithLabelValues()
	m.snapshot = m.gauge("outbox_snapshot_seconds", "Age of the database's oldest open transaction, which keeps deleted events from being cleared away.").WithLabelValues()
	return m
}

func (m *outboxMetrics) onForward(i record.ForwardInfo) {
	m.confirmed.Add(float64(i.Confirmed))
	m.failed.Add(float64(i.Failed))
}

func (m *outboxMetrics) onOutbox(i record.OutboxInfo) {
	m.rows.Set(float64(i.Rows))
	m.bytes.Set(float64(i.Bytes))
	m.oldest.Set(i.Oldest.Seconds())
	m.snapshot.Set(i.Snapshot.Seconds())
}

// OutboxMetrics are those of Metrics that a forwarder fills, for one that runs outside of a consumer, and the hooks that
// fill them.
func OutboxMetrics() (prometheus.Collector, record.Hooks) {
	m := newOutboxMetrics()
	return m, record.Hooks{OnForward: m.onForward, OnOutbox: m.onOutbox}
}

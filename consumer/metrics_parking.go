package consumer

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headrace/headrace/record"
)

// parkingMetrics are of what routes have parked; a route that does not park has none.
type parkingMetrics struct {
	collected

	records, oldest, late *prometheus.GaugeVec
	tries                 *prometheus.CounterVec
	rounds                *prometheus.HistogramVec
}

// parkedRounds are how often records fail out of parking, 10 times at most by default.
var parkedRounds = []float64{0, 1, 2, 3, 5, 8, 10, 20, 50}

func newParkingMetrics() *parkingMetrics {
	m := &parkingMetrics{}
	m.records = m.gauge("parked_records", "Records that are parked, those that wait behind another included.", "route")
	m.oldest = m.gauge("parked_oldest_seconds", "Time for which the oldest of them that is first of its key is parked.", "route")
	m.late = m.gauge("parked_due_seconds", "Time for which the first of them is due that nobody tries.", "route")
	m.tries = m.counter("parked_tries_total", "Parked records that were tried, by outcome: parked is a further round.", "route", "outcome")
	m.rounds = m.histogram("parked_rounds", "How often a record had failed out of parking when it left.", parkedRounds, "route")
	return m
}

func (m *parkingMetrics) preset(s spec) {
	if !s.parks() {
		return
	}
	for _, v := range []*prometheus.GaugeVec{m.records, m.oldest, m.late} {
		v.WithLabelValues(s.name)
	}
	for _, o := range record.Outcomes {
		m.tries.WithLabelValues(s.name, o.String())
	}
	m.rounds.WithLabelValues(s.name)
}

func (m *parkingMetrics) onParking(i record.ParkingInfo) {
	m.records.WithLabelValues(i.Route).Set(float64(i.Records))
	m.oldest.WithLabelValues(i.Route).Set(i.Oldest.Seconds())
	m.late.WithLabelValues(i.Route).Set(i.Late.Seconds())
}

func (m *parkingMetrics) onSettle(i record.SettleInfo) {
	m.tries.WithLabelValues(i.Route, i.Outcome.String()).Inc()
	if i.Outcome != record.Parked {
		m.rounds.WithLabelValues(i.Route).Observe(float64(i.Round))
	}
}

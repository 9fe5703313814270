package consumer

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headrace/headrace/record"
)

// series are what one route counts of every record, found once: to find a series by its labels costs as much as to count
// in it.
type series struct {
	records     [len(record.Outcomes) + 1]prometheus.Counter // by outcome
	recordTime  prometheus.Observer
	succeeded   prometheus.Counter // attempts; those that failed are rare, and looked up
	attemptTime prometheus.Observer
}

func (m *metrics) seriesOf(route string) *series {
	s := &series{
		recordTime:  m.recordTime.WithLabelValues(route),
		succeeded:   m.attempts.WithLabelValues(route, "succeeded", succeeded),
		attemptTime: m.attemptTime.WithLabelValues(route),
	}
	for _, o := range record.Outcomes {
		s.records[o] = m.records.WithLabelValues(route, o.String())
	}
	return s
}

// settled is the counter of an outcome.
func (s *series) settled(m *metrics, i record.SettleInfo) prometheus.Counter {
	if int(i.Outcome) < len(s.records) && s.records[i.Outcome] != nil {
		return s.records[i.Outcome]
	}
	return m.records.WithLabelValues(i.Route, i.Outcome.String())
}

// onSettle leaves out what belongs to another route: it is outside of the ledger, and counted there.
func (m *metrics) onSettle(i record.SettleInfo) {
	if i.Outcome == record.Foreign {
		return
	}
	s := m.of(i.Route)
	if i.Replay {
		m.replayed.WithLabelValues(i.Route, i.Outcome.String()).Inc()
	}
	if i.Unparked {
		m.parking.onSettle(i)
	}
	s.settled(m, i).Inc()
	s.recordTime.Observe(i.Age.Seconds())
}

func (m *metrics) onAttempt(i record.AttemptInfo) {
	s := m.of(i.Route)
	if i.Class == "" {
		s.succeeded.Inc()
	} else {
		m.attempts.WithLabelValues(i.Route, "failed", bounded(i.Class, m.attemptClasses)).Inc()
	}
	s.attemptTime.Observe(i.Took.Seconds())
}

// of gives the series of a route; those of one that the consumer does not have are found anew each time.
func (m *metrics) of(route string) *series {
	if s := m.routes[route]; s != nil {
		return s
	}
	return m.seriesOf(route)
}

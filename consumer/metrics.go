package consumer

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

const namespace = "headrace"

// other is the value of a label whose real one is not among those that we know: labels must stay bounded, whatever a
// handler names its dependencies.
const other = "other"

// succeeded is the class of an attempt that did not fail.
const succeeded = "none"

var (
	claimEvents  = []string{"assigned", "revoked", "lost", "stopped"}
	lossKinds    = []string{record.ReportOffsetOutOfRange, record.ReportTopicRecreated}
	groupResults = []string{"committed", "rolled_back", "unknown"}
	// waits are what any route can wait for.
	waits = []string{
		fault.Database, fault.DeadLetterTopic, fault.Kafka, fault.Network,
		middleware.RetryAfter, middleware.BusyElsewhere, middleware.Postponed, middleware.NoRoom, middleware.NoBudget,
		middleware.Flood, middleware.RouteStopped,
	}
	// latencies are from a hundred microseconds, a queued effect, to a minute and a half, past any sound timeout.
	latencies = prometheus.ExponentialBuckets(0.0001, 4, 11)
	batches   = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}
)

// metrics are one set of hooks. Every series that can be known at start is there from the start, at zero: an alert on
// a rate must not miss the first dead letter because its series began at one.
type metrics struct {
	collected

	records        *prometheus.CounterVec
	recordTime     *prometheus.HistogramVec
	replayed       *prometheus.CounterVec
	attempts       *prometheus.CounterVec
	attemptTime    *prometheus.HistogramVec
	inbox          *prometheus.CounterVec
	groups         *prometheus.CounterVec
	groupRecords   *prometheus.HistogramVec
	groupTime      *prometheus.HistogramVec
	holding        *prometheus.GaugeVec
	holdSeconds    *prometheus.CounterVec
	deadLetters    *prometheus.CounterVec
	claims         *prometheus.CounterVec
	reports        *prometheus.CounterVec
	lost           *prometheus.CounterVec
	retention      *prometheus.GaugeVec
	calls          *calls
	outbox         *outboxMetrics
	parking        *parkingMetrics
	routes         map[string]*series // read only once made
	reasons        []string
	dependencies   []string // for which a route can hold
	inboxAnswers   []string
	attemptClasses []string
}

func newMetrics(specs []spec, others ...*downstream.Dependency) *metrics {
	m := &metrics{routes: make(map[string]*series, len(specs)), reasons: reasonNames(), inboxAnswers: dedup.Answers, attemptClasses: classNames()}
	m.records = m.counter("records_total", "Records by the outcome that became durable.", "route", "outcome")
	m.recordTime = m.histogram("record_duration_seconds", "Time from a record's delivery to its outcome, waits included.", latencies, "route")
	m.replayed = m.counter("replayed_total", "Dead letters that were replayed, by their outcome; they are in records_total too.", "route", "outcome")
	m.attempts = m.counter("attempts_total", "Attempts by outcome (succeeded, failed) and the class of the failure.", "route", "outcome", "class")
	m.attemptTime = m.histogram("attempt_duration_seconds", "Time of one attempt.", latencies, "route")
	m.inbox = m.counter("inbox_answers_total", "Records by what the inbox answered: fresh, or the kind of hit.", "route", "answer")
	m.groups = m.counter("commit_groups_total", "Group transactions by result.", "route", "result")
	m.groupRecords = m.histogram("commit_group_records", "Records that shared one group transaction.", batches, "route")
	m.groupTime = m.histogram("commit_group_duration_seconds", "Time of one group transaction.", latencies, "route")
	m.holding = m.gauge("holding", "Records that wait at this moment for a dependency, their followers not counted.", "route", "dependency")
	m.holdSeconds = m.counter("hold_seconds_total", "Time that records have waited for a dependency.", "route", "dependency")
	m.deadLetters = m.counter("dead_letters_total", "Dead letters that the broker has confirmed, by reason.", "route", "reason")
	m.claims = m.counter("claims_total", "Partitions assigned, revoked, lost and stopped.", "event")
	m.reports = m.counter("reports_total", "Matters that an operator must know, by kind; each is a line in the log.", "kind")
	m.lost = m.counter("offsets_lost_total", "Offsets that a log lost before they were read, that were skipped for it, or that it lost afterwards, by the report's kind.", "kind")
	m.retention = m.gauge("topic_retention_seconds", "How long a topic that is read keeps its records, +Inf for ever.", "topic")
	m.calls = newCalls(specs, others...)
	m.include(m.calls.collected)
	m.outbox = newOutboxMetrics()
	m.include(m.outbox.collected)
	m.parking = newParkingMetrics()
	m.include(m.parking.collected)
	m.dependencies = slices.Concat(waits, m.calls.names)
	for _, s := range specs {
		m.preset(s)
		m.parking.preset(s)
		m.routes[s.name] = m.seriesOf(s.name)
	}
	m.presetShared()
	return m
}

func (m *metrics) preset(s spec) {
	route, holds := s.name, waits
	if name := s.dependency(); name != "" {
		holds = slices.Concat(waits, []string{name})
	}
	for _, o := range record.Outcomes {
		m.records.WithLabelValues(route, o.String())
		m.replayed.WithLabelValues(route, o.String())
	}
	m.attempts.WithLabelValues(route, "succeeded", succeeded)
	for _, class := range m.attemptClasses {
		m.attempts.WithLabelValues(route, "failed", class)
	}
	presetEach(m.inbox, route, m.inboxAnswers)
	presetEach(m.groups, route, groupResults)
	presetEach(m.holdSeconds, route, holds)
	presetEach(m.deadLetters, route, m.reasons)
	for _, d := range holds {
		m.holding.WithLabelValues(route, d)
	}
	for _, h := range []*prometheus.HistogramVec{m.recordTime, m.attemptTime, m.groupRecords, m.groupTime} {
		h.WithLabelValues(route)
	}
}

func (m *metrics) presetShared() {
	for _, e := range claimEvents {
		m.claims.WithLabelValues(e)
	}
	for _, k := range record.ReportKinds {
		m.reports.WithLabelValues(k)
	}
	for _, k := range lossKinds {
		m.lost.WithLabelValues(k)
	}
}

func presetEach(v *prometheus.CounterVec, route string, values []string) {
	for _, value := range values {
		v.WithLabelValues(route, value)
	}
}

// hooks are what the engine calls.
func (m *metrics) hooks() record.Hooks {
	return record.Hooks{
		OnSettle:     m.onSettle,
		OnAttempt:    m.onAttempt,
		OnInbox:      m.onInbox,
		OnGroup:      m.onGroup,
		OnHold:       m.onHold,
		OnDeadLetter: m.onDeadLetter,
		OnClaim:      m.onClaim,
		OnCall:       m.calls.onCall,
		OnBreaker:    m.calls.onBreaker,
		OnRetry:      m.calls.onRetry, OnDegraded: m.calls.onDegraded, OnCallInTransaction: m.calls.onInTransaction,
		OnForward: m.outbox.onForward,
		OnOutbox:  m.outbox.onOutbox,
		OnParking: m.parking.onParking,
		OnReport:  m.onReport,
	}
}

func (m *metrics) onInbox(i record.InboxInfo) {
	m.inbox.WithLabelValues(i.Route, bounded(i.Answer, m.inboxAnswers)).Add(float64(i.Records))
}

func (m *metrics) onGroup(i record.GroupInfo) {
	m.groups.WithLabelValues(i.Route, bounded(i.Result, groupResults)).Inc()
	m.groupRecords.WithLabelValues(i.Route).Observe(float64(i.Records))
	m.groupTime.WithLabelValues(i.Route).Observe(i.Took.Seconds())
}

func (m *metrics) onHold(i record.HoldInfo) {
	dependency := bounded(i.Dependency, m.dependencies)
	if i.Began {
		m.holding.WithLabelValues(i.Route, dependency).Inc()
		return
	}
	m.holding.WithLabelValues(i.Route, dependency).Dec()
	m.holdSeconds.WithLabelValues(i.Route, dependency).Add(max(i.Took, 0).Seconds())
}

func (m *metrics) onDeadLetter(i record.DeadLetterInfo) {
	m.deadLetters.WithLabelValues(i.Route, bounded(i.Reason, m.reasons)).Inc()
}

func (m *metrics) onClaim(i record.ClaimInfo) {
	m.claims.WithLabelValues(bounded(i.Event, claimEvents)).Inc()
}

func (m *metrics) onReport(r record.Report) {
	if r.Lost.Count > 0 {
		m.lost.WithLabelValues(bounded(r.Kind, lossKinds)).Add(float64(r.Lost.Count))
	}
	m.reports.WithLabelValues(bounded(r.Kind, record.ReportKinds[:])).Inc()
}

func bounded(value string, known []string) string {
	if slices.Contains(known, value) {
		return value
	}
	return other
}

func classNames() []string {
	classes := []fault.Class{
		fault.ClassPermanent, fault.ClassTransient, fault.ClassAmbiguous,
		fault.ClassBusy, fault.ClassUnavailable, fault.ClassCancelled,
	}
	names := make([]string, len(classes))
	for i, c := range classes {
		names[i] = c.String()
	}
	return names
}

func reasonNames() []string {
	names := make([]string, len(dlq.Reasons))
	for i, r := range dlq.Reasons {
		names[i] = string(r)
	}
	return names
}

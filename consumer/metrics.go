package consumer

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/fault"
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
	groupResults = []string{"committed", "rolled_back", "unknown"}
	dependencies = []string{fault.Database, fault.DeadLetterTopic}
	// latencies are from a hundred microseconds, a queued effect, to a minute and a half, past any sound timeout.
	latencies = prometheus.ExponentialBuckets(0.0001, 4, 11)
	batches   = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}
)

// metrics are one set of hooks. Every series that can be known at start is there from the start, at zero: an alert on
// a rate must not miss the first dead letter because its series began at one.
type metrics struct {
	records        *prometheus.CounterVec
	recordTime     *prometheus.HistogramVec
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
	reasons        []string
	dependencies   []string
	inboxAnswers   []string
	attemptClasses []string
}

func newMetrics(routes []string) *metrics {
	m := &metrics{
		records:     counter("records_total", "Records by the outcome that became durable.", "route", "outcome"),
		recordTime:  histogram("record_duration_seconds", "Time from a record's delivery to its outcome, waits included.", latencies, "route"),
		attempts:    counter("attempts_total", "Attempts by outcome (succeeded, failed) and the class of the failure.", "route", "outcome", "class"),
		attemptTime: histogram("attempt_duration_seconds", "Time of one attempt.", latencies, "route"),
		inbox:       counter("inbox_answers_total", "Records by what the inbox answered: fresh, or the kind of hit.", "route", "answer"),
		groups:      counter("commit_groups_total", "Group transactions by result.", "route", "result"),
		groupRecords: histogram("commit_group_records", "Records that shared one group transaction.",
			batches, "route"),
		groupTime:   histogram("commit_group_duration_seconds", "Time of one group transaction.", latencies, "route"),
		holding:     gauge("holding", "Records that wait at this moment for a dependency, their followers not counted.", "route", "dependency"),
		holdSeconds: counter("hold_seconds_total", "Time that records have waited for a dependency.", "route", "dependency"),
		deadLetters: counter("dead_letters_total", "Dead letters that the broker has confirmed, by reason.", "route", "reason"),
		claims:      counter("claims_total", "Partitions assigned, revoked, lost and stopped.", "event"),
		reports:     counter("reports_total", "Matters that an operator must know, by kind; each is a line in the log.", "kind"),
		reasons:     reasonNames(), dependencies: dependencies, inboxAnswers: dedup.Answers, attemptClasses: classNames(),
	}
	for _, route := range routes {
		m.preset(route)
	}
	m.presetShared()
	return m
}

func (m *metrics) preset(route string) {
	for _, o := range record.Outcomes {
		m.records.WithLabelValues(route, o.String())
	}
	m.attempts.WithLabelValues(route, "succeeded", succeeded)
	for _, class := range m.attemptClasses {
		m.attempts.WithLabelValues(route, "failed", class)
	}
	presetEach(m.inbox, route, m.inboxAnswers)
	presetEach(m.groups, route, groupResults)
	presetEach(m.holdSeconds, route, m.dependencies)
	presetEach(m.deadLetters, route, m.reasons)
	for _, d := range m.dependencies {
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
		OnReport:     m.onReport,
	}
}

func (m *metrics) onSettle(i record.SettleInfo) {
	m.records.WithLabelValues(i.Route, i.Outcome.String()).Inc()
	m.recordTime.WithLabelValues(i.Route).Observe(i.Age.Seconds())
}

func (m *metrics) onAttempt(i record.AttemptInfo) {
	outcome, class := "failed", bounded(i.Class, m.attemptClasses)
	if i.Class == "" {
		outcome, class = "succeeded", succeeded
	}
	m.attempts.WithLabelValues(i.Route, outcome, class).Inc()
	m.attemptTime.WithLabelValues(i.Route).Observe(i.Took.Seconds())
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
	m.reports.WithLabelValues(bounded(r.Kind, record.ReportKinds[:])).Inc()
}

// Describe and Collect make the set one collector, registered and unregistered as a whole.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{
		m.records, m.recordTime, m.attempts, m.attemptTime, m.inbox, m.groups, m.groupRecords, m.groupTime,
		m.holding, m.holdSeconds, m.deadLetters, m.claims, m.reports,
	}
}

func bounded(value string, known []string) string {
	if slices.Contains(known, value) {
		return value
	}
	return other
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: buckets,
	}, labels)
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

package compose

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/idempotency"
	"github.com/headrace/headrace/idempotency/idemprom"
	"github.com/headrace/headrace/record"
)

var (
	metricPattern = regexp.MustCompile(`\b(headrace_[a-z_]+)(?:\{([^}]*)\})?`)
	byPattern     = regexp.MustCompile(`\bby \(([^)]*)\)`)
	matchPattern  = regexp.MustCompile(`([a-z_]+)(?:=|!=|=~|!~)"([^"]*)"`)
	legendPattern = regexp.MustCompile(`\{\{ *(?:\$labels\.)?([a-z_]+) *\}\}`)
	suffixPattern = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// values are those that a label can have, where expressions ask for one by name.
var values = map[string][]string{
	"state":   record.BreakerStates[:],
	"kind":    record.ReportKinds[:],
	"outcome": outcomes(),
}

func outcomes() []string {
	names := slices.Concat(record.CallOutcomes[:], idempotency.Outcomes[:])
	for _, o := range record.Outcomes {
		names = append(names, o.String())
	}
	return names
}

// keyMetrics are those of a service with idempotency keys.
func keyMetrics(t *testing.T) (ms []consumer.Metric) {
	t.Helper()
	metrics := idemprom.New()
	metrics.Hooks().OnRoute("charge")
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(metrics))
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		m := consumer.Metric{Name: f.GetName(), Type: strings.ToLower(f.GetType().String())}
		for _, l := range f.GetMetric()[0].GetLabel() {
			m.Labels = append(m.Labels, l.GetName())
		}
		ms = append(ms, m)
	}
	return ms
}

// requireExported: an expression whose metric or label nobody exports shows nothing and raises no alarm, and nothing
// else says so. texts are legends and the like, with labels in braces.
func requireExported(t *testing.T, expr string, texts ...string) {
	t.Helper()
	found := metricPattern.FindAllStringSubmatch(expr, -1)
	require.NotEmpty(t, found, expr)
	labels := map[string]bool{}
	for _, f := range found {
		for _, label := range requireMetric(t, f[1], f[2]) {
			labels[label] = true
		}
	}
	kept := labels
	if by := byPattern.FindAllStringSubmatch(expr, -1); len(by) > 0 {
		kept = map[string]bool{}
		for _, b := range by {
			for label := range strings.SplitSeq(b[1], ",") {
				kept[strings.TrimSpace(label)] = true
			}
		}
	}
	for label := range kept {
		require.True(t, labels[label], "%s: by (%s)", expr, label)
	}
	for _, text := range texts {
		for _, l := range legendPattern.FindAllStringSubmatch(text, -1) {
			require.True(t, kept[l[1]], "%s: {{%s}}", expr, l[1])
		}
	}
}

// requireMetric checks a metric and its matchers and returns its labels.
func requireMetric(t *testing.T, name, matchers string) []string {
	t.Helper()
	all := map[string]consumer.Metric{}
	for _, m := range slices.Concat(consumer.Metrics(), keyMetrics(t)) {
		all[m.Name] = m
	}
	m, is := all[name]
	labels := slices.Clone(m.Labels)
	if !is {
		m, is = all[suffixPattern.ReplaceAllString(name, "")]
		require.True(t, is && m.Type == "histogram", "no metric %s", name)
		labels = append(slices.Clone(m.Labels), "le")
	} else {
		require.NotEqual(t, "histogram", m.Type, "%s has only series with a suffix", name)
	}
	for _, match := range matchPattern.FindAllStringSubmatch(matchers, -1) {
		require.Contains(t, m.Labels, match[1], name)
		require.Contains(t, values[match[1]], match[2], "%s{%s}", name, match[1])
	}
	return labels
}

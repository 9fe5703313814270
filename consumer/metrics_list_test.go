package consumer

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

func TestMetricsList(t *testing.T) {
	t.Parallel()

	t.Run("StandsInTheOperationsPageWordByWord", func(t *testing.T) {
		t.Parallel()
		page, err := os.ReadFile("../docs/operations.md")
		require.NoError(t, err)
		for _, m := range Metrics() {
			name := strings.TrimPrefix(m.Name, namespace+"_")
			row := fmt.Sprintf("| `%s{%s}` | %s | ", name, strings.Join(m.Labels, ","), m.Type)
			require.Contains(t, string(page), row, "and what it tells: "+m.Help)
		}
		section := string(page[strings.Index(string(page), "## Metrics"):strings.Index(string(page), "## Alerts")])
		require.Equal(t, len(Metrics()), strings.Count(section, "\n| `"), "a metric that is none any more")
	})

	t.Run("StandsInThePackagesTutorial", func(t *testing.T) {
		t.Parallel()
		page, err := os.ReadFile("doc.go")
		require.NoError(t, err)
		for _, m := range Metrics() {
			require.Contains(t, string(page), strings.TrimPrefix(m.Name, namespace+"_")+"{", m.Name)
		}
	})

	t.Run("IsWhatARegistryExports", func(t *testing.T) {
		t.Parallel()
		reg := gathered(t, func(h record.Hooks) {
			h.OnParking(record.ParkingInfo{Route: "post"})
			h.OnSettle(record.SettleInfo{Route: "post", Outcome: record.Effected, Unparked: true})
		})
		require.NoError(t, reg.Register(newPartitions(func() []kafka.PartitionStats {
			return []kafka.PartitionStats{{Topic: "orders"}}
		})))
		require.Equal(t, exported(t, reg), names(Metrics()))
	})
}

func names(ms []Metric) []string {
	out := make([]string, len(ms))
	for i, m := range ms {
		out[i] = m.Name + " " + m.Type + " " + strings.Join(slices.Sorted(slices.Values(m.Labels)), ",")
	}
	return out
}

// exported are the metrics of a scrape, in the same words.
func exported(t *testing.T, reg prometheus.Gatherer) []string {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	var out []string
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		out = append(out, f.GetName()+" "+strings.ToLower(f.GetType().String())+" "+strings.Join(labels, ","))
	}
	return out
}

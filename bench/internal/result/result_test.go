package result

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 2, Median([]float64{3, 1, 2}), 0)
	require.InDelta(t, 2.5, Median([]float64{4, 1, 3, 2}), 0)
	require.InDelta(t, 7, Median([]float64{7}), 0)
	unsorted := []float64{2, 1}
	Median(unsorted)
	require.Equal(t, []float64{2, 1}, unsorted, "the caller's order stays")
}

func TestOf(t *testing.T) {
	t.Parallel()
	r := Of("throughput", "a", 1, 10, []Run{{Rate: 1, CPUPer100k: 5, PeakMB: 9}, {Rate: 3, CPUPer100k: 7, PeakMB: 4}, {Rate: 2, CPUPer100k: 6, PeakMB: 1}})
	require.True(t, r.Verified)
	require.Equal(t, 3, r.Runs)
	require.InDelta(t, 2, r.Rate, 0)
	require.InDelta(t, 6, *r.CPU, 0)
	require.InDelta(t, 9, *r.PeakRSS, 0, "the largest of the runs, not the median")
	require.Nil(t, r.Allocs, "what nobody told is no zero")
}

func TestCompare(t *testing.T) {
	t.Parallel()
	rs := []Result{
		{Scenario: "s", Contender: Stock, Partitions: 1, Rate: 10, Verified: true},
		{Scenario: "s", Contender: "a", Partitions: 1, Rate: 25, Verified: true},
		{Scenario: "s", Contender: "a", Partitions: 8, Rate: 25, Verified: true},
		{Scenario: "s", Contender: "wrong", Partitions: 1, Rate: 99},
		{Scenario: "s", Contender: "loaded", Partitions: 1, Rate: 20, Verified: true, P50: known(3)},
	}
	Compare(rs)
	require.InDelta(t, 2.5, *rs[1].RatioToStock, 0)
	require.Nil(t, rs[2].RatioToStock, "stock did not run there")
	require.Nil(t, rs[3].RatioToStock, "what is not verified has no ratio")
	require.Nil(t, rs[4].RatioToStock, "its rate is the load's")
}

var day = time.Date(2026, 3, 1, 23, 0, 0, 0, time.UTC)

func TestUpdateWritesTheShapeThatReadersExpect(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "results.json")
	rs := []Result{
		Of("throughput", "headrace-apply-inbox", 8, 100, []Run{{Rate: 2, CPUPer100k: 1, PeakMB: 3, Allocs: 4}}),
		Failed("throughput", "stock", 1, 100, errors.New("account 3 has 4")),
	}
	require.NoError(t, Update(file, day, rs))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var list []map[string]any
	require.NoError(t, json.Unmarshal(text, &list))
	require.Equal(t, map[string]any{
		"scenario": "throughput", "contender": "headrace-apply-inbox", "partitions": 8.0, "records": 100.0, "runs": 1.0,
		"rate": 2.0, "ratio_to_stock": nil, "cpu_s_per_100k": 1.0, "peak_rss_mb": 3.0, "allocs_per_record": 4.0, "verified": true,
		"measured": "2026-03-01",
	}, list[0])
	require.Equal(t, false, list[1]["verified"])
	require.Equal(t, "account 3 has 4", list[1]["error"])
}

func TestUpdateKeepsWhatWasNotMeasuredAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "results.json")
	require.NoError(t, Update(file, day, nil))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.JSONEq(t, `[]`, string(text))
	of := func(scenario, contender string, partitions int32, rate float64) Result {
		return Result{Scenario: scenario, Contender: contender, Partitions: partitions, Rate: rate, Verified: true, Measured: "2026-03-01"}
	}
	require.NoError(t, Update(file, day, []Result{of("hot", "stock", 8, 1), of("hot", "headrace-apply", 1, 2), of("hot", "headrace-apply", 8, 3)}))
	require.NoError(t, Update(file, day, []Result{of("calls", "stock", 8, 4), of("hot", "headrace-apply", 8, 5)}))
	all, err := read(file)
	require.NoError(t, err)
	require.Equal(t, []Result{of("hot", "stock", 8, 1), of("hot", "headrace-apply", 1, 2), of("hot", "headrace-apply", 8, 5), of("calls", "stock", 8, 4)}, all)
}

func TestUpdateLeavesAnotherFileAlone(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "notes.txt")
	require.NoError(t, os.WriteFile(file, []byte("remember"), 0o600))
	require.ErrorContains(t, Update(file, day, nil), "notes.txt holds no results")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "remember", string(text))
}

func TestBars(t *testing.T) {
	t.Parallel()
	bar := func(t *testing.T, name string, rs ...Result) Bar {
		t.Helper()
		bars := Bars(rs)
		i := slices.IndexFunc(bars, func(b Bar) bool { return strings.HasPrefix(b.Name, name) })
		require.GreaterOrEqual(t, i, 0)
		return bars[i]
	}
	run := func(scenario, contender string, partitions int32, rate float64) Result {
		return Result{Scenario: scenario, Contender: contender, Partitions: partitions, Rate: rate, Verified: true}
	}
	t.Run("OfWhatDidNotRunAreOpen", func(t *testing.T) {
		t.Parallel()
		for _, b := range Bars(nil) {
			require.Equal(t, "-", b.Met, b.Name)
		}
	})
	t.Run("AreMetAtTheirValue", func(t *testing.T) {
		t.Parallel()
		b := bar(t, "Apply to stock, 1", run("throughput", Stock, 1, 10), run("throughput", "headrace-apply-inbox", 1, 80))
		require.Equal(t, Bar{Name: b.Name, Want: "≥ 8x", Have: "8.00x", Met: "yes"}, b)
	})
	t.Run("AreMissedBelow", func(t *testing.T) {
		t.Parallel()
		b := bar(t, "Apply to stock, 1", run("throughput", Stock, 1, 10), run("throughput", "headrace-apply-inbox", 1, 79))
		require.Equal(t, "no", b.Met)
	})
	t.Run("CompareWithTheBestExpert", func(t *testing.T) {
		t.Parallel()
		b := bar(t, "Queue to franz-go with pgx.Batch, 8", run("throughput", "headrace-queue-inbox", 8, 12),
			run("throughput", "franz-rows-500", 8, 10), run("throughput", "franz-rows-2000", 8, 12), run("throughput", "franz-rows-500", 1, 99))
		require.Equal(t, "1.00x", b.Have)
		require.Equal(t, "no", b.Met)
	})
	t.Run("DoNotCountWhatIsNotVerified", func(t *testing.T) {
		t.Parallel()
		wrong := run("throughput", "headrace-apply-inbox", 1, 80)
		wrong.Verified = false
		require.Equal(t, "-", bar(t, "Apply to stock, 1", run("throughput", Stock, 1, 10), wrong).Met)
	})
	t.Run("PoisonIsACost", func(t *testing.T) {
		t.Parallel()
		b := bar(t, "What 1 % poison", run("poison", "headrace-apply-inbox/with", 8, 80), run("poison", "headrace-apply-inbox/without", 8, 100))
		require.Equal(t, "20.00 %", b.Have)
		require.Equal(t, "yes", b.Met)
	})
	t.Run("MemoryIsTheWorstOfAll", func(t *testing.T) {
		t.Parallel()
		small, large := run("memory", "a", 8, 1), run("memory", "b", 8, 1)
		small.PeakRSS, large.PeakRSS = known(100), known(201)
		require.Equal(t, "no", bar(t, "Most memory", large, small).Met)
	})
}

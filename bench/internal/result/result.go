// Package result is what a run of the benchmarks comes to: medians, a table, results.json, and the bars that the library
// wants to clear.
package result

import (
	"cmp"
	"slices"
)

// Result is one contender in one scenario, the medians of its runs.
type Result struct {
	Scenario   string `json:"scenario"`
	Contender  string `json:"contender"`
	Partitions int32  `json:"partitions"`
	Records    int    `json:"records"`
	Runs       int    `json:"runs"`
	// Rate is records a second, from the first handler's begin to the last committed effect.
	Rate float64 `json:"rate"`
	// RatioToStock is to stock Watermill's rate in the same scenario at the same partitions; null where it does not run.
	RatioToStock *float64 `json:"ratio_to_stock"`
	// CPU is processor seconds of the contender's process for 100,000 records; null where it cannot be told.
	CPU *float64 `json:"cpu_s_per_100k"`
	// PeakRSS is the most memory of the contender's process that was resident, in MB: the largest of the runs.
	PeakRSS *float64 `json:"peak_rss_mb"`
	// Allocs is objects allocated a record, of contenders in Go.
	Allocs *float64 `json:"allocs_per_record,omitempty"`
	// P50, P99 and P999 are milliseconds from when a record was due to be produced to its committed effect.
	P50  *float64 `json:"p50_ms,omitempty"`
	P99  *float64 `json:"p99_ms,omitempty"`
	P999 *float64 `json:"p999_ms,omitempty"`
	// Measured is the day of the run, in UTC: results with the same day and records may be compared with each other.
	Measured string `json:"measured,omitempty"`
	// Verified: after every run each account had its balance, and the contender's books what they must.
	Verified bool `json:"verified"`
	// Error is why there is no result, or none that counts.
	Error string `json:"error,omitempty"`
}

// Run is one run of a contender.
type Run struct {
	Rate       float64
	CPUPer100k float64
	PeakMB     float64
	Allocs     float64
	P50, P99   float64
	P999       float64
}

// Of makes a result of the runs, which have been verified. There is at least one.
func Of(scenario, contender string, partitions int32, records int, runs []Run) Result {
	r := Result{
		Scenario: scenario, Contender: contender, Partitions: partitions, Records: records, Runs: len(runs), Verified: true,
		Rate: Median(each(runs, func(r Run) float64 { return r.Rate })),
		CPU:  known(Median(each(runs, func(r Run) float64 { return r.CPUPer100k }))),
	}
	r.PeakRSS = known(slices.Max(each(runs, func(r Run) float64 { return r.PeakMB })))
	r.Allocs = known(Median(each(runs, func(r Run) float64 { return r.Allocs })))
	r.P50 = known(Median(each(runs, func(r Run) float64 { return r.P50 })))
	r.P99 = known(Median(each(runs, func(r Run) float64 { return r.P99 })))
	r.P999 = known(Median(each(runs, func(r Run) float64 { return r.P999 })))
	return r
}

// Failed is a contender that has no result.
func Failed(scenario, contender string, partitions int32, records int, err error) Result {
	return Result{Scenario: scenario, Contender: contender, Partitions: partitions, Records: records, Error: err.Error()}
}

func each(runs []Run, figure func(Run) float64) []float64 {
	out := make([]float64, len(runs))
	for i, r := range runs {
		out[i] = figure(r)
	}
	return out
}

// known is nil for a figure that nobody could tell.
func known(x float64) *float64 {
	if x == 0 {
		return nil
	}
	return &x
}

// Median is the middle value; of an even number the mean of the two in the middle. There is at least one.
func Median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2
}

// Stock is the contender that the others are compared with.
const Stock = "stock"

// Compare sets each result's ratio to stock's in the same scenario. A rate that was given, under a load, is no result.
func Compare(results []Result) {
	type place struct {
		scenario   string
		partitions int32
	}
	stock := map[place]float64{}
	for _, r := range results {
		if r.Contender == Stock && r.Verified {
			stock[place{r.Scenario, r.Partitions}] = r.Rate
		}
	}
	for i, r := range results {
		if base := stock[place{r.Scenario, r.Partitions}]; base > 0 && r.Verified && r.P50 == nil {
			results[i].RatioToStock = known(r.Rate / base)
		}
	}
}

// Best is the highest verified rate of those whose names the predicate takes; false if there is none.
func Best(results []Result, scenario string, partitions int32, of func(contender string) bool) (Result, bool) {
	var all []Result
	for _, r := range results {
		if r.Scenario == scenario && r.Partitions == partitions && r.Verified && of(r.Contender) {
			all = append(all, r)
		}
	}
	if len(all) == 0 {
		return Result{}, false
	}
	return slices.MaxFunc(all, func(a, b Result) int { return cmp.Compare(a.Rate, b.Rate) }), true
}

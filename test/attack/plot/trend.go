package plot

import (
	"cmp"
	"math"
	"slices"
)

// Verdict is what can be said of a series.
type Verdict string

const (
	// Flat has not risen by as much as matters.
	Flat Verdict = "flat"
	// Rises has, and not by chance.
	Rises Verdict = "rises"
	// Unknown is too short or too restless: it may have risen by as much as matters, or not.
	Unknown Verdict = "unknown"
)

// Trend is where a series goes, whatever single samples do.
type Trend struct {
	// Level is the median of the cycles' values, Rise what they gain from the first cycle to the last.
	Level float64 `json:"level"`
	Rise  float64 `json:"rise"`
	// Least and Most are what Rise lies between in 19 of 20 cases.
	Least   float64 `json:"least"`
	Most    float64 `json:"most"`
	Cycles  int     `json:"cycles"`
	Verdict Verdict `json:"verdict"`
}

// Bound is the smallest rise that matters: Least, in the series' unit, or Share of its level, whichever is more.
type Bound struct{ Least, Share float64 }

const (
	// calm is the quantile of a cycle's samples that stands for it. Whatever is done to the members in a cycle lifts some of
	// its samples, and a leak lifts all. It is no minimum, which a single odd sample would decide.
	calm = 0.25
	// fewest cycles whose order says anything: chance has five rise one after the other in one of 120 cases, and four in
	// one of 24, which half a dozen series that are looked at would meet too often.
	fewest = 5
	// deviations that a normal variable stays within in 19 of 20 cases.
	deviations = 1.96
)

// trendOf says where cycles go. It is by the median of the slopes between all pairs of them (Theil and Sen), and by the
// interval that Kendall's test gives it: neither asks how noise is distributed, and a third of the cycles may be anything.
//
// What rises does so by bound, and has an interval above zero. What is flat rises by less, and has an interval that ends
// below twice the bound: a soak that could not have seen a leak does not vouch for there being none. A series that falls is
// flat: what is left of its warming up is no leak.
func trendOf(cycles []Point, bound Bound) Trend {
	n := len(cycles)
	if n == 0 {
		return Trend{Verdict: Unknown}
	}
	trend := Trend{Level: quantile(values(cycles), 0.5), Cycles: n, Verdict: Unknown}
	if n < fewest {
		return trend
	}
	whole := cycles[n-1].T - cycles[0].T
	rise, least, most := slopeOf(cycles)
	trend.Rise, trend.Least, trend.Most = rise*whole, least*whole, most*whole
	switch matters := max(bound.Least, bound.Share*trend.Level); {
	case trend.Rise >= matters && trend.Least > 0:
		trend.Verdict = Rises
	case trend.Rise < matters && trend.Most < 2*matters:
		trend.Verdict = Flat
	}
	return trend
}

// cyclesOf gives each whole cycle from a moment on the value that stands for it, at its middle.
func cyclesOf(samples []Point, from, cycle float64) (of []Point) {
	parts := map[int][]float64{}
	for _, s := range samples {
		n := int(s.T / cycle)
		parts[n] = append(parts[n], s.V)
	}
	for n, part := range parts {
		begin, end := float64(n)*cycle, float64(n+1)*cycle
		if begin >= from && end <= samples[len(samples)-1].T+cycle/10 { // the last sample of a whole one is not at its very end
			of = append(of, Point{begin + cycle/2, quantile(part, calm)})
		}
	}
	slices.SortFunc(of, func(a, b Point) int { return cmp.Compare(a.T, b.T) })
	return of
}

// slopeOf is the median of the slopes between all pairs, with what the true one lies between in 19 of 20 cases.
func slopeOf(of []Point) (median, least, most float64) {
	var all []float64
	for i, b := range of {
		for _, a := range of[:i] {
			all = append(all, (b.V-a.V)/(b.T-a.T))
		}
	}
	slices.Sort(all)
	// Of n values without a trend Kendall's statistic, how many pairs rise less how many fall, has this deviation. By half of
	// what it stays within the rank of the true slope is off the middle.
	n, pairs := float64(len(of)), float64(len(all))
	off := int((pairs - deviations*math.Sqrt(n*(n-1)*(2*n+5)/18)) / 2)
	return all[len(all)/2], all[max(0, off-1)], all[len(all)-max(1, off)]
}

// quantile sorts of, which is not empty.
func quantile(of []float64, q float64) float64 {
	slices.Sort(of)
	return of[min(max(0, int(q*float64(len(of)))), len(of)-1)]
}

func values(of []Point) (all []float64) {
	for _, p := range of {
		all = append(all, p.V)
	}
	return all
}

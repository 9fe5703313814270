package plot

import (
	"math"
	"slices"
)

// Trend is where a series goes, whatever single samples do.
type Trend struct {
	// Level is the median.
	Level float64 `json:"level"`
	// Rise is what it gains from the first sample to the last, by the median of the slopes between all pairs of samples
	// (Theil and Sen): a spike in a tenth of them does not move it.
	Rise float64 `json:"rise"`
	Flat bool    `json:"flat"`
}

// TrendOf says where y goes over t. It is flat if it rises by less than a tenth of its level, or by less than least, which
// is what does not matter. A series that falls is flat: what is left of its warming up is no leak.
func TrendOf(t, y []float64, least float64) Trend {
	if len(y) < 2 {
		return Trend{}
	}
	var slopes []float64
	for i := range y {
		for j := range i {
			if dt := t[i] - t[j]; dt > 0 {
				slopes = append(slopes, (y[i]-y[j])/dt)
			}
		}
	}
	rise := median(slopes) * (t[len(t)-1] - t[0])
	level := median(slices.Clone(y))
	return Trend{Level: level, Rise: rise, Flat: rise < math.Max(least, level/10)}
}

func median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return of[len(of)/2]
}

package plot

import "math"

// axis is upright: its panel's upper edge, and the values at its ends.
type axis struct {
	top         float64
	least, most float64
	log         bool
}

func axisOf(s Series, top float64) axis {
	most := 1.0
	for _, p := range s.Samples {
		most = max(most, p.V)
	}
	if !s.Log {
		return axis{top: top, most: ceiling(most)}
	}
	least := most
	for _, p := range s.Samples {
		least = min(least, max(1, p.V))
	}
	return axis{top, math.Pow(10, math.Floor(math.Log10(least))), math.Pow(10, max(1, math.Ceil(math.Log10(most)))), true}
}

func (a axis) y(v float64) float64 {
	share := v / a.most
	if a.log {
		share = math.Log(max(a.least, v)/a.least) / math.Log(a.most/a.least)
	}
	return a.top + panel*(1-share)
}

func (a axis) ticks() []float64 {
	if !a.log {
		return []float64{0, a.most / 2, a.most}
	}
	var of []float64
	for v := a.least; v <= a.most*1.01; v *= 10 {
		of = append(of, v)
	}
	return of
}

// ceiling is a round number above v, which is above 0.
func ceiling(v float64) float64 {
	scale := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 1.5, 2, 3, 4, 6, 8} {
		if v <= m*scale {
			return m * scale
		}
	}
	return 10 * scale
}

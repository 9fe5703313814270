package consumer

import (
	"fmt"
	"sort"
	"time"
)

// lever says what one field must become to save `over`: the change in proportion, and the text "Field to 41s". It is
// false when the field alone cannot save that much.
type lever func(over time.Duration) (change float64, to string, ok bool)

// duration is the lever of a field that counts `times` times in a sum.
func duration(name string, value time.Duration, times int) lever {
	return func(over time.Duration) (float64, string, bool) {
		if times < 1 || value <= 0 {
			return 0, "", false
		}
		to := lowered(value, over, times)
		return cut(value, to), name + " to " + short(to), to > 0
	}
}

// lowered is the most that a field may be which counts `times` times in a sum that is to shrink by over.
func lowered(value, over time.Duration, times int) time.Duration {
	return roundDown(value - ((over-1)/time.Duration(times) + 1)) // rounded up: a nanosecond too little does not fit
}

// cut is by what part a value shrinks.
func cut(from, to time.Duration) float64 { return 1 - float64(to)/float64(from) }

// count is the lever of Attempts, whose every step saves what `total` says.
func count(name string, value int, total func(n int) time.Duration) lever {
	return func(over time.Duration) (float64, string, bool) {
		// The most that saves enough; fewer save more.
		n := sort.Search(max(value-1, 0), func(i int) bool { return total(value)-total(i+1) < over })
		return float64(value-n) / float64(value), fmt.Sprintf("%s to %d", name, n), n >= 1
	}
}

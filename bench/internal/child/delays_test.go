package child

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	thousand := make([]int64, 1000)
	for i := range thousand {
		thousand[i] = int64(i + 1)
	}
	for _, c := range []struct {
		name   string
		sorted []int64
		p      float64
		want   int64
	}{
		{"OfOneIsThatOne", []int64{7}, 0.5, 7},
		{"MedianOfTwoIsTheLower", []int64{1, 2}, 0.5, 1},
		{"MedianOfThree", []int64{1, 2, 3}, 0.5, 2},
		{"P99", thousand, 0.99, 990},
		{"P999IsNotTheMaximum", thousand, 0.999, 999},
		{"MaximumIsTheLast", thousand, 1, 1000},
		{"SmallerThanAnyRankIsTheFirst", thousand, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, percentile(c.sorted, c.p))
		})
	}
}

func TestLatencies(t *testing.T) {
	t.Parallel()
	t.Run("OfNothingAreNone", func(t *testing.T) {
		t.Parallel()
		require.Nil(t, (&delays{}).latencies())
	})
	t.Run("AreInMillisecondsWhateverTheOrder", func(t *testing.T) {
		t.Parallel()
		var d delays
		for _, ms := range []int64{30, 10, 20} {
			d.add(ms * int64(time.Millisecond))
		}
		require.Equal(t, &Latencies{Records: 3, P50: 20, P99: 30, P999: 30, Max: 30}, d.latencies())
	})
}

package dedup

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReach(t *testing.T) {
	t.Parallel()
	r := &reach{least: leastReach, every: saveEvery, most: 2000}
	reaches := func() int {
		n, _ := r.of(2000)
		return n
	}
	of := func(left int) [2]int {
		n, every := r.of(left)
		return [2]int{n, every}
	}

	require.Equal(t, [2]int{2000, 0}, of(2000), "as a rule one trip without savepoints")
	r.passed(2000)
	require.Equal(t, [2]int{2000, 0}, of(2000))
	r.failed(100)
	require.Equal(t, [2]int{200, saveEvery}, of(2000), "twice as far as the last one came")
	require.Equal(t, [2]int{50, saveEvery}, of(50))
	r.passed(50)
	require.Equal(t, 200, reaches(), "a short line shows nothing")
	r.failed(0)
	require.Equal(t, leastReach, reaches())
	for _, n := range []int{128, 256, 512, 1024} {
		r.passed(reaches())
		require.Equal(t, n, reaches())
	}
	r.passed(1024)
	require.Equal(t, [2]int{2000, 0}, of(2000))
	r.failed(1900)
	require.Equal(t, [2]int{2000, saveEvery}, of(2000), "no further than the largest group")
}

// TestReach_KeysThatFailedOnceTakeOneTripAGroup: their records pass, group after group.
func TestReach_KeysThatFailedOnceTakeOneTripAGroup(t *testing.T) {
	t.Parallel()
	r := &reach{most: 2000}
	trips := func(frail int) (n int) {
		for ; frail > 0; n++ {
			passed := r.dares(frail)
			r.dared(passed)
			frail -= passed
		}
		return n
	}
	require.Equal(t, 5, trips(20), "1, 2, 4, 8, 5")
	require.Equal(t, 2, trips(20), "16, 4")
	require.Equal(t, 1, trips(20))
	require.Equal(t, 1, trips(3))
	require.Equal(t, 1, trips(20), "a short line shows nothing")
	r.dared(0)
	require.Equal(t, 1, r.dares(20), "one failed")
	r.dared(1999)
	require.Equal(t, 2000, r.dares(5000), "no more than the largest group")
}

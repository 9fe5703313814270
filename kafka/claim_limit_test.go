package kafka

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInFlightIsBoundedHoweverLargeABatchIs(t *testing.T) {
	t.Parallel()
	for maxBatch, want := range map[int]int{1: 2000, 100: 2000, 500: 10_000, 2000: 10_000, 5000: 20_000} {
		require.Equal(t, want, inFlight(maxBatch), "MaxBatch %d", maxBatch)
	}
}

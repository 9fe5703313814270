package parking_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/parking"
)

func TestPolicy(t *testing.T) {
	t.Parallel()

	t.Run("DoublesUpToTheCap", func(t *testing.T) {
		t.Parallel()
		var delays []time.Duration
		for round := 1; round <= 8; round++ {
			delays = append(delays, parking.Policy{}.Delay(round))
		}
		m := time.Minute
		require.Equal(t, []time.Duration{m, 2 * m, 4 * m, 8 * m, 16 * m, 32 * m, time.Hour, time.Hour}, delays)
		require.Equal(t, 63*m+4*time.Hour, parking.Policy{}.Longest())
		require.Equal(t, time.Hour, parking.Policy{}.Delay(1000))
	})

	t.Run("SaysWhatIsWrong", func(t *testing.T) {
		t.Parallel()
		for text, p := range map[string]parking.Policy{
			"Cap 1s is less than Base 1m0s":        {Cap: time.Second},
			"Rounds -1 is not between 1 and 1000":  {Rounds: -1},
			"Rounds 1001 is not":                   {Rounds: 1001},
			"OnDead 7 is neither Release nor Hold": {OnDead: 7},
			"MaxRecords -1 is negative":            {MaxRecords: -1},
			"Lease 1ms is less than 1s":            {Lease: time.Millisecond},
			"10 rounds wait 5h3m0s in all (Base 1m0s doubled up to Cap 1h0m0s), which exceeds MaxAge 1h0m0s": {MaxAge: time.Hour},
		} {
			require.ErrorContains(t, p.Validate(), text)
		}
		require.NoError(t, parking.Policy{}.Validate())
	})
}

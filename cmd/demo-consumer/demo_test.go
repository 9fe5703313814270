package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestDemo is the whole of it, small: everything embedded, everything goes wrong, and the ledger balances.
func TestDemo(t *testing.T) {
	t.Parallel()
	s, err := parse([]string{"-json", "-records", "3000", "-pace", "3s", "-outage", "1s", "-seed", "42"}, t.Output())
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), s, &out, t.Output()), out.String())

	var r report
	decoder := json.NewDecoder(&out)
	require.NoError(t, decoder.Decode(&r))
	require.False(t, decoder.More(), "one object and nothing else")
	require.Equal(t, 3000, r.Records)
	require.True(t, r.Balanced, r.Problems)
	require.Equal(t, r.Records, r.sum())
	require.Positive(t, r.Duplicate)
	require.Positive(t, r.Dead)
	require.GreaterOrEqual(t, r.Rebalances, 2, "a member came and went")
}

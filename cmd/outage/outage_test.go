package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/pgtest"
)

func TestMain(m *testing.M) {
	zerolog.SetGlobalLevel(zerolog.Disabled)
	pgtest.Main(m)
}

// outages runs the command, and gives its exit code and its report.
func outages(t *testing.T, args ...string) (int, report) {
	t.Helper()
	var out bytes.Buffer
	exit := code(t.Context(), append([]string{"-json"}, args...), &out, t.Output())
	decoder := json.NewDecoder(&out)
	var r report
	require.NoError(t, decoder.Decode(&r))
	require.False(t, decoder.More(), "one object and nothing else")
	return exit, r
}

// TestOutage is make outage, short. The machine may be busy: what is a matter of time is given it.
func TestOutage(t *testing.T) {
	t.Parallel()
	exit, r := outages(t, "-cut", "4s", "-rate", "25", "-slack", "20") // twice what a call may take
	require.True(t, r.OK, "%+v", r.Kinds)
	require.Zero(t, exit)
	require.Len(t, r.Kinds, len(kinds))
	for _, o := range r.Kinds {
		require.Positive(t, o.Figures["entry_errors"].Value, "%s: it was cut off", o.Kind)
		require.Positive(t, o.Ledger.Effected, o.Kind)
		require.Equal(t, o.Ledger.Records, o.Ledger.sum(), o.Kind)
		require.Equal(t, o.Ledger.Effected, o.Ledger.Charges, o.Kind)
	}
}

// TestOutage_ADoubleChargeIsExitCode1: answers are lost, and the service does not remember what it has charged.
func TestOutage_ADoubleChargeIsExitCode1(t *testing.T) {
	t.Parallel()
	exit, r := outages(t, "-cut", "1s", "-rate", "25", "-slack", "20", "-kinds", "reset_peer", "-forgetful")
	require.Equal(t, 1, exit)
	require.False(t, r.OK)
	for name, f := range r.Kinds[0].Figures {
		require.Equal(t, name != "double_charges", f.OK, "%s: %+v", name, f)
	}
}

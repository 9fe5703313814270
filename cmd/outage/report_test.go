package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/record"
)

func TestReport(t *testing.T) {
	t.Parallel()
	of := func(letters int) *report {
		w := newWatch()
		d, err := newDependency(w)
		require.NoError(t, err)
		w.cut()
		w.heal()
		w.healed()
		w.call(record.CallInfo{Outcome: record.CallSucceeded})
		p := &phase{kind: kinds[0], watch: w, dependency: d, meter: &meter{}, ledger: ledger{OutageLetters: letters}}
		p.settings.slack = 1
		return newReport(p.settings, []*phase{p})
	}

	t.Run("IsOKWhereEveryBoundHolds", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		require.NoError(t, of(0).write(&out, false))
		require.Contains(t, out.String(), "ok: every bound holds")
		require.NotContains(t, out.String(), "!")
	})

	t.Run("MarksWhatIsPastItsBound", func(t *testing.T) {
		t.Parallel()
		r := of(3)
		require.False(t, r.OK)
		require.False(t, r.Kinds[0].Figures["outage_letters"].OK)
		var out bytes.Buffer
		require.NoError(t, r.write(&out, false))
		require.Regexp(t, `outage letters +0 +! 3`, out.String())
		require.Contains(t, out.String(), "NOT OK")
	})
}

func TestParse(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"AKindThatThereIsNot": {"-kinds", "flood"},
		"NoTime":              {"-cut", "10ms"},
		"NoOrders":            {"-rate", "0"},
		"LessThanNoSlack":     {"-slack", "0.5"},
		"AnArgument":          {"timeout"},
		"AFlagThatThereIsNot": {"-short"},
	} {
		t.Run("Refuses"+name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, 2, code(t.Context(), args, io.Discard, t.Output()))
		})
	}
}

func TestFix(t *testing.T) {
	t.Parallel()
	require.Contains(t, fix(fmt.Errorf("timeout: %w", &net.OpError{Op: "dial"})), "\n  fix: what is built in has ended")
	require.Empty(t, fix(errPassed))
}

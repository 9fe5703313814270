package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReplay_FailuresThatAreAlikeAreFewLines(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for i := range 20 {
		env := exhausted(i)
		env.Group = strings.Repeat("g", 249)
		b.bury(env, nil, nil)
	}
	r := b.run("dlq", "replay", "--topic", "orders.dlq", "--yes")
	require.Equal(t, exitFailed, r.code)
	require.Len(t, lines(r.err), 4)
	require.Contains(t, lines(r.err)[0], "failed  orders.dlq/1/0 (orders/1/0): ")
	require.Contains(t, lines(r.err)[3], "failed  17 more: ")
}

// --as-group other on letters that name their own group was ignored in silence.
func TestReplay_AsFlagsThatLettersContradictAreSaidToBeIgnored(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.buryMany(3)
	r := b.ok("dlq", "replay", "--topic", "orders.dlq", "--yes", "--as-group", "other", "--as-route", "charge-order", "--as-source", "elsewhere")
	require.Contains(t, r.err, "--as-group is ignored for 3 letters with a consumer group of their own\n--as-source is ignored for 3 letters with a source topic of their own\n")
	require.NotContains(t, r.err, "--as-route", "it says what they say")
	require.Len(t, b.replayed(), 3)

	b.terminal, b.answer = true, "n\n"
	r = b.run("dlq", "replay", "--topic", "orders.dlq", "--as-group", "other")
	require.True(t, strings.HasPrefix(r.err, "--as-group is ignored for 3 letters"), "told before the question: %s", r.err)
}

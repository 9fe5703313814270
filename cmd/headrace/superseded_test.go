package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// ls showed a letter, its record died again, and the letter could not be shown any more.
func TestShow_ALetterWhoseRecordDiedAgainIsShownByItsOldPlace(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	env := exhausted(1)
	old := b.bury(env, nil, []byte("v"))
	env.Replays, env.Message = 1, "dead again"
	later := b.bury(env, nil, []byte("v"))
	require.NotEqual(t, old, later)

	out := b.ok("dlq", "show", "--topic", "orders.dlq", old).out
	require.Contains(t, out, "letter        orders.dlq/"+old+"\nsuperseded    by orders.dlq/"+later+", a later letter of the same record\n")
	require.Contains(t, out, "error         payments: 503 Service Unavailable\n")
	require.NotContains(t, b.ok("dlq", "show", "--topic", "orders.dlq", "--at", "orders/1/1").out, "superseded")
	require.Contains(t, b.ok("dlq", "show", "--topic", "orders.dlq", "--json", old).out, `"superseded_by":"orders.dlq/`+later+`"`)
	require.Contains(t, b.ok("dlq", "ls", "--topic", "orders.dlq", "--at", "orders.dlq/"+old).out, "; "+old+" is superseded by "+later+"\n")

	r := b.ok("dlq", "replay", "--topic", "orders.dlq", old)
	require.Contains(t, r.out, "skipped  1  1 superseded\n")
	require.Equal(t, old+" is superseded by orders.dlq/"+later+", a later letter of the same record: replay that with\n  headrace dlq replay --topic orders.dlq "+later+"\n", r.err)
	require.Empty(t, b.replayed())
}

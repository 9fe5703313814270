package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// --topic orders, with .dlq forgotten, listed 20,000 letters, and a replay would have sent all orders to a route.
func TestASourceTopicIsNoDeadLetterTopic(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for range 30 {
		b.produce("orders", 0, night, []byte("c"), []byte(`{}`))
	}
	const said = `30 of 30 records of "orders" are no dead letters`
	const where = "does orders.dlq exist? Its dead letters go there by default: --topic orders.dlq"

	r := b.ok("dlq", "ls", "--topic", "orders")
	require.Equal(t, "note: "+said+": "+where+"\n", r.err)
	r = b.ok("dlq", "show", "--topic", "orders", "0/3")
	require.Equal(t, "note: orders/0/3 is no dead letter: "+where+"\n", r.err)

	for _, flags := range []string{"--yes", "--dry-run", "--yes --as-source orders --as-group billing --as-route charge-order", "0/3"} {
		r = b.run(append([]string{"dlq", "replay", "--topic", "orders"}, strings.Fields(flags)...)...)
		require.Equal(t, exitUsage, r.code, flags)
		require.Empty(t, strings.TrimSpace(r.out), flags)
		require.Contains(t, r.err, "headrace: nothing was replayed: "+said+"\n  fix: "+where+"; if its records are to be replayed as they are, add --format unknown\n", flags)
		require.Empty(t, b.replayed(), flags)
	}

	asked := []string{"dlq", "replay", "--topic", "orders", "--format", "unknown", "--yes"}
	r = b.run(asked...)
	require.Equal(t, exitFailed, r.code)
	require.Equal(t, "failed  30 letters without a source topic: give --as-source, --as-group, --as-route (orders/0/0, orders/0/1, orders/0/2, …)\n", r.err)
	b.ok(append(asked, "--as-source", "orders", "--as-group", "billing", "--as-route", "charge-order")...)
	require.Len(t, b.replayed(), 30)
}

func TestReplay_ARecordAmongLettersThatIsNoneIsLeftOutAndSaid(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.buryMany(1)
	b.produce("orders.dlq", 0, night, nil, []byte("stray"))
	r := b.ok("dlq", "replay", "--topic", "orders.dlq", "--yes", "--as-source", "orders", "--as-group", "billing", "--as-route", "charge-order")
	require.Contains(t, r.out, "skipped  1  1 no_dead_letter\n")
	require.Contains(t, r.err, "1 record of no known format: --format unknown replays such too\n")
	require.Len(t, b.replayed(), 1)
}

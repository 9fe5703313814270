package main

import (
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

var update = flag.Bool("update", false, "write what the commands print into docs/operations.md")

const operations = "../../docs/operations.md"

// varying is what differs from run to run: times and ids.
var varying = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// The commands in the documentation are run as they stand there, in their order, on a consumer that runs; what they
// print is what stands there. -update writes it.
func TestDocs_CommandsPrintWhatTheySay(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(operations)
	require.NoError(t, err)
	w := nightWorld(t)
	out, commands := regexp.MustCompile("(?s)```console\n(.*?)```").ReplaceAllStringFunc, 0
	got := out(string(page), func(block string) string {
		var b strings.Builder
		for _, line := range lines(block) {
			if command, ok := strings.CutPrefix(line, "$ headrace "); ok {
				commands++
				b.WriteString(line + "\n" + w.transcript(strings.Fields(command)))
			}
		}
		return "```console\n" + b.String() + "```"
	})
	require.GreaterOrEqual(t, commands, 5)
	if *update {
		require.NoError(t, os.WriteFile(operations, []byte(got), 0o600))
		return
	}
	require.Equal(t, varying.ReplaceAllString(string(page), "…"), varying.ReplaceAllString(got, "…"))
}

func operationsPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(operations)
	require.NoError(t, err)
	return string(page)
}

// nightWorld is a consumer whose orders have died while payments was away.
func nightWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	kafkatest.CreateTopic(t, w.brokers, "shipments", 1)
	w.startWith(w.route("charge-order"), w.ships())
	w.ship("order-12", "down")
	w.ship("order-13", "good") // of the same customer
	w.ship("order-15", "down")
	w.die("order-17", "down")
	w.die("order-18", "unknown")
	w.order("order-19", []byte(`{"id": order-19}`))
	require.Equal(t, record.Dead, w.next().Outcome)
	w.die("order-20", "down")
	value, err := json.Marshal(order{ID: "order-21", Fate: "stuck"})
	require.NoError(t, err)
	w.order("order-21", value)
	w.healthy.Store(true) // somebody has seen to it; what follows is the documentation's
	return w
}

// ships is a route on a topic of its own that parks what is down.
func (w *world) ships() consumer.AnyRoute {
	route := w.route("ship-order")
	route.Topic, route.Attempts, route.Park = "shipments", 1, &parking.Policy{Base: time.Hour}
	return route
}

// ship sends an order to be shipped, which is parked: order-12 and 13 are of one customer.
func (w *world) ship(id, fate string) {
	w.t.Helper()
	value, err := json.Marshal(order{ID: id, Fate: fate})
	require.NoError(w.t, err)
	key := []byte("c-12")
	if id > "order-13" {
		key = []byte("c-15")
	}
	w.produce("shipments", 0, time.Now(), key, value, record.Header{Key: record.UUIDHeader, Value: []byte(id)})
	require.Equal(w.t, record.Parked, w.next().Outcome)
}

// transcript is what a command prints, on whatever stream. A replay and a burial are waited for until the consumer is
// done with them.
func (w *world) transcript(args []string) string {
	w.t.Helper()
	r := w.ok(args...)
	if m := regexp.MustCompile(`(?m)^sent +(\d+)`).FindStringSubmatch(r.out); m != nil {
		for range len(w.replayed()) - int(w.seen.Load()) {
			require.True(w.t, w.next().Replay)
			w.seen.Add(1)
		}
	}
	switch strings.Join(args[:2], " ") {
	case "bury --group", "parked dead":
		require.Equal(w.t, record.Dead, w.next().Outcome)
	case "parked retry":
		if !strings.Contains(r.out, "--dry-run") {
			require.Equal(w.t, map[record.Outcome]int{record.Effected: 2}, w.outcomes(2))
		}
	}
	return r.out + r.err
}

// What the documentation says of a reason is what 'show' says.
func TestDocs_ReasonsAreExplainedInTheSameWords(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(operations)
	require.NoError(t, err)
	for _, reason := range dlq.Reasons {
		a := advised[reason]
		require.NotEmpty(t, a.action, reason)
		require.Contains(t, string(page), "| `"+string(reason)+"` | "+a.meaning+" | "+a.action+" |\n")
	}
}

// Every command line in the documentation names commands and flags that exist.
func TestDocs_CommandLinesParse(t *testing.T) {
	t.Parallel()
	for _, file := range []string{operations, "../../README.md"} {
		page, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile("(?m)^(?:\\$ |    )?headrace (?:dlq|migrate|bury|parked|outbox|audit|idempotency) .*$|`headrace (?:dlq|migrate|bury|parked|outbox|audit|idempotency)\\b[^`]*`").FindAllString(string(page), -1) {
			requireParses(t, strings.Trim(m, "` $"))
		}
	}
}

// So are those of parked records, in the same words.
func TestDocs_ParkedStatesAreExplained(t *testing.T) {
	t.Parallel()
	help := newCLI(t).ok("parked", "ls", "--help").out
	for _, state := range parking.States {
		require.Contains(t, help, "\n  "+string(state)+" ")
		require.Contains(t, operationsPage(t), "\n| `"+string(state)+"` | "+stateMeans[state]+" |\n")
	}
}

// The states of --state are explained in the help and in the documentation.
func TestDocs_StatesAreExplained(t *testing.T) {
	t.Parallel()
	help := newCLI(t).ok("dlq", "ls", "--help").out
	for _, state := range states() {
		require.Contains(t, help, "\n  "+state+" ")
		require.Contains(t, operationsPage(t), "\n| `"+state+"` | ")
	}
}

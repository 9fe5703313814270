package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
)

func TestMain(m *testing.M) {
	if args := os.Getenv(argsEnv); args != "" {
		os.Exit(code(strings.Split(args, "\n"), os.Stderr))
	}
	pgtest.Main(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick")) // Sarama's, one a process
}

// TestDemo is the whole of it, small: everything embedded, everything goes wrong, and the ledger balances.
func TestDemo(t *testing.T) {
	t.Parallel()
	r := demonstrate(t, "-records", "3000", "-pace", "6s", "-outage", "1s", "-payments-outage", "1s", "-seed", "42")
	require.Equal(t, 3000, r.Records)
	require.Positive(t, r.Duplicate)
	require.Positive(t, r.Skipped)
	require.GreaterOrEqual(t, r.Rebalances, 2, "a member came and went")
}

// TestDemo_UnderTheStockSubscriber is the same, with watermill-kafka between Kafka and the stack.
func TestDemo_UnderTheStockSubscriber(t *testing.T) {
	t.Parallel()
	r := demonstrate(t, "-transport", "watermill-kafka", "-records", "3000", "-pace", "6s", "-outage", "1s", "-payments-outage", "1s")
	require.Equal(t, 3000, r.Records)
	require.Equal(t, "watermill-kafka", r.Transport)
	require.GreaterOrEqual(t, r.Rebalances, 2, "a member came and went")
}

// TestDemo_WithTheOffsetStore is the same without rows of what is effected, with both transports.
func TestDemo_WithTheOffsetStore(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{ours, watermillKafka} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			r := demonstrate(t, "-store", "offset", "-transport", transport, "-records", "3000", "-pace", "6s", "-outage", "1s", "-payments-outage", "1s")
			require.Equal(t, 3000, r.Records)
			require.Equal(t, "offset", r.Store)
			require.Zero(t, r.Duplicate)
			require.Positive(t, r.Skipped)
			require.GreaterOrEqual(t, r.Rebalances, 2, "a member came and went")
		})
	}
}

// TestDemo_OnSomebodysKafkaAndPostgres is what the compose stack is for. That database is not stopped, but cut off.
func TestDemo_OnSomebodysKafkaAndPostgres(t *testing.T) {
	t.Parallel()
	brokers := strings.Join(kafkatest.Real(t).Brokers(), ",")
	args := []string{
		"-brokers", brokers, "-dsn", pgtest.DSN(t), "-topic", kafkatest.Name(t), "-group", kafkatest.Name(t),
		"-records", "2000", "-pace", "5s", "-outage", "1s", "-payments-outage", "1s",
	}
	r := demonstrate(t, args...)
	require.Equal(t, 2000, r.Records)
	require.Positive(t, r.Holds)
}

// demonstrate runs the demo, and checks what each of its reports must say.
func demonstrate(t *testing.T, args ...string) report {
	t.Helper()
	s, err := parse(append([]string{"-json"}, args...), t.Output())
	require.NoError(t, err)
	var out bytes.Buffer
	err = run(t.Context(), s, &out, t.Output())
	require.NoError(t, err, out.String())
	reports := reportsOf(t, &out)
	require.Len(t, reports, 1, "one object and nothing else")
	r := reports[0]
	require.True(t, r.Balanced, r.Problems)
	require.Equal(t, r.Records, r.sum())
	require.Zero(t, r.DoubleCharges)
	require.Equal(t, r.Effected+r.ChargedInVain, r.Charges, "each effected order once, and those that died after it")
	require.Positive(t, r.Dead)
	require.Positive(t, r.BreakerOpened, "the payment service was away long enough")
	require.NotContains(t, r.DeadByReason, "unknown_outcome", "an outage killed it")
	require.Equal(t, r.Effected, r.Events, "each order that has its effect has one event")
	require.Equal(t, r.Events, r.Notices)
	require.NotEmpty(t, r.Degraded, "the directory was away")
	require.Zero(t, r.Parked, "the bank came back")
	require.True(t, r.OrderKept)
	if r.Store == inboxStore {
		require.Positive(t, r.ParkedMeanwhile)
	}
	return r
}

func reportsOf(t *testing.T, out io.Reader) (all []report) {
	t.Helper()
	decoder := json.NewDecoder(out)
	for decoder.More() {
		var r report
		require.NoError(t, decoder.Decode(&r))
		all = append(all, r)
	}
	return all
}

// TestReportHasTheKeysThatScriptsReadItBy: they are the demo's interface.
func TestReportHasTheKeysThatScriptsReadItBy(t *testing.T) {
	t.Parallel()
	keys := func(r report) map[string]any {
		var out bytes.Buffer
		require.NoError(t, r.print(&out, true))
		var m map[string]any
		require.NoError(t, json.Unmarshal(out.Bytes(), &m))
		return m
	}
	for _, key := range []string{
		"records", "effected", "duplicate", "skipped", "dead", "parked", "balanced", "dead_by_reason",
		"events", "notices", "degraded", "parked_meanwhile", "order_kept",
		"store", "charges", "charged_in_vain", "double_charges", "breaker_opened", "rebalances", "seconds", "rate",
	} {
		require.Contains(t, keys(report{}), key)
	}
	require.NotContains(t, keys(report{}), "dsn")
	for _, key := range []string{"brokers", "dsn", "topic", "metrics", "dead_letter_topic", "payments"} {
		require.Contains(t, keys(report{Stay: &Stay{}}), key)
	}
}

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
)

// argsEnv makes the test binary the demo itself, so that it can be killed.
const argsEnv = "HEADRACE_DEMO_ARGS"

// TestParts_ABalancedLedgerOfAConsumerThatWasKilled: the ends are found by processes that did not see the beginning.
func TestParts_ABalancedLedgerOfAConsumerThatWasKilled(t *testing.T) {
	t.Parallel()
	for _, store := range []string{inboxStore, offsetStore} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			killed(t, store)
		})
	}
}

func killed(t *testing.T, store string) {
	t.Helper()
	broker := kafkatest.Fake(t, kfake.BrokerConfigs(map[string]string{"group.min.session.timeout.ms": "100"}))
	dsn := pgtest.DSN(t)
	where := []string{
		"-json", "-store", store, "-records", "4000", "-pace", "0", "-session", "2s", "-seed", "5",
		"-brokers", strings.Join(broker.ListenAddrs(), ","), "-dsn", dsn,
	}
	part := func(name string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), argsEnv+"="+strings.Join(append([]string{name}, where...), "\n"))
		cmd.Stderr = t.Output()
		return cmd
	}
	require.NoError(t, part("-produce-only").Run())

	db, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	defer db.Close()
	for _, share := range []int{500, 1500, 2500} {
		consuming := part("-consume-only")
		require.NoError(t, consuming.Start())
		require.Eventually(t, func() bool { return posted(t, db) >= share }, 30*time.Second, 5*time.Millisecond)
		require.NoError(t, consuming.Process.Kill())
		require.Error(t, consuming.Wait())
	}
	for _, name := range []string{"-consume-only", "-audit-only"} {
		out, err := part(name).Output()
		require.NoError(t, err, string(out))
		r := reportsOf(t, bytes.NewReader(out))[0]
		require.True(t, r.Balanced, r.Problems)
		require.Equal(t, 4000, r.Records)
		require.Equal(t, 4000, r.sum())
		require.Zero(t, r.DoubleCharges)
	}
}

// posted is how many orders have had their effect, 0 as long as nobody has made the tables.
func posted(t *testing.T, db *pgxpool.Pool) (n int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), `select count(*) from postings`).Scan(&n); err != nil {
		return 0
	}
	return n
}

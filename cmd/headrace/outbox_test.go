package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/freeport"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/outbox"
)

func TestOutbox(t *testing.T) {
	t.Parallel()
	brokers, dsn := kafkatest.Fake(t).ListenAddrs(), pgtest.DSN(t, migrations.Up)
	for _, topic := range []string{"ledger", "stock"} {
		kafkatest.CreateTopic(t, brokers, topic, 1)
	}
	pool := pgtest.Pool(t, dsn)
	c := newCLI(t, envBrokers+"="+strings.Join(brokers, ","), envDSN+"="+dsn)

	require.Regexp(t, `^EVENTS  BYTES  OLDEST  TOPIC\n +0 +0 +0s  total of 0 topics\noldest open transaction: `, c.ok("outbox", "status").out)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	for i := range 10 {
		topic := "ledger"
		if i >= 7 {
			topic = "stock"
		}
		require.NoError(t, outbox.Publisher(tx).Publish(topic, message.NewMessage(fmt.Sprint("id-", i), []byte("value"))))
	}
	require.NoError(t, tx.Commit(t.Context()))
	require.Regexp(t, `^EVENTS +BYTES +OLDEST +TOPIC\n +7 +\d+ +\S+s  ledger\n +3 +\d+ +\S+s  stock\n +10 +\d+ +\S+s  total of 2 topics\noldest open transaction: `,
		c.ok("outbox", "status").out)
	w := c.waiting()
	require.Equal(t, int64(10), w.Rows)
	require.Len(t, w.Topics, 2)
	require.Equal(t, topicJSON{Topic: "stock", Rows: 3, Bytes: w.Bytes - w.Topics[0].Bytes, Oldest: w.Topics[1].Oldest}, w.Topics[1])
	require.Positive(t, w.Oldest)

	port, err := freeport.Get()
	require.NoError(t, err)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan result, 1)
	go func() { ended <- c.runUntil(ctx, "outbox", "run", "--metrics", address) }()
	require.Eventually(t, func() bool {
		_, text := get(t, address, "/metrics")
		return strings.Contains(text, `headrace_outbox_events_total{result="confirmed"} 10`)
	},
		patience, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		code, text := get(t, address, "/readyz")
		return code == http.StatusOK && text == "ok\n"
	},
		patience, 10*time.Millisecond)
	cancel()
	r := <-ended
	require.Equal(t, exitOK, r.code, r.err)
	require.Len(t, kafkatest.ReadAll(t, brokers, "ledger"), 7)
	require.Contains(t, r.err, "metrics and health: http://"+address+"/metrics /livez /readyz\n")

	w = c.waiting()
	require.Equal(t, outboxJSON{Snapshot: w.Snapshot, Topics: []topicJSON{}}, w)
}

// waiting is what 'outbox status --json' says.
func (c *cli) waiting() (w outboxJSON) {
	c.t.Helper()
	require.NoError(c.t, json.Unmarshal([]byte(c.ok("outbox", "status", "--json").out), &w))
	return w
}

// An orchestrator restarted it, or sent nobody to look, as long as all that it could ask for were metrics.
func TestOutbox_WithoutBrokersItLivesAndIsNotReady(t *testing.T) {
	t.Parallel()
	c := newCLI(t, envBrokers+"=127.0.0.1:1", envDSN+"="+pgtest.DSN(t, migrations.Up))
	port, err := freeport.Get()
	require.NoError(t, err)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan result, 1)
	go func() { ended <- c.runUntil(ctx, "outbox", "run", "--metrics", fmt.Sprint(":", port)) }()
	require.Eventually(t, func() bool {
		code, text := get(t, address, "/readyz")
		return code == http.StatusServiceUnavailable && strings.HasPrefix(text, "the brokers have not answered yet: ") &&
			strings.HasSuffix(text, "connection refused\n")
	},
		patience, 10*time.Millisecond)
	code, text := get(t, address, "/livez")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok\n", text)
	cancel()
	r := <-ended
	require.Equal(t, exitOK, r.code, r.err)
}

func TestOutbox_WrongUse(t *testing.T) {
	t.Parallel()
	c := newCLI(t, envBrokers+"=127.0.0.1:1", envDSN+"="+pgtest.DSN(t))
	r := c.run("outbox", "run")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "headrace migrate up")
	r = c.run("outbox", "run", "--metrics", "nowhere")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "--metrics nowhere")
	r = c.run("outbox", "status")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "headrace migrate up")
}

// get is a page, 0 while nobody serves it.
func get(t *testing.T, address, path string) (code int, text string) {
	t.Helper()
	resp, err := http.Get("http://" + address + path) //nolint:noctx // a test's
	if err != nil {
		return 0, ""
	}
	defer func() { require.NoError(t, resp.Body.Close()) }()
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(page)
}

func TestListen_OnThisMachineAloneUnlessAHostIsNamed(t *testing.T) {
	t.Parallel()
	for address, alone := range map[string]bool{":0": true, "127.0.0.1:0": true, "localhost:0": true, "0.0.0.0:0": false} {
		l, err := listen(address)
		require.NoError(t, err)
		require.Equal(t, alone, l.Addr().(*net.TCPAddr).IP.IsLoopback(), address)
		require.NoError(t, l.Close())
	}
}

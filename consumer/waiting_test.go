package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/middleware"
)

// errLeaky is a failure that names a password and the record.
func errLeaky(e Event[item]) error {
	return fmt.Errorf("dial postgres://app:hunter2@db-7/orders for %s of order %s: connection refused", e.Key, e.ID)
}

func TestReady_SaysWhyARouteHolds(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]func(error) string{
		"AsTheLettersWould": nil,
		"AsRedactErrorSays": func(err error) string { return strings.ReplaceAll(err.Error(), "db-7", "the host") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			d := dependency(t, "payments", func(c *downstream.Config) {
				c.Breaker = downstream.BreakerConfig{MinRequests: 5, OpenFor: 100 * time.Millisecond}
			})
			route := newPayments(t).route(d)
			route.Call = func(_ context.Context, e Event[item]) (receipt, error) {
				return receipt{}, fault.Transient(errLeaky(e))
			}
			var out lockedBuffer
			cfg := b.config()
			cfg.Logger, cfg.RedactError = slog.New(slog.NewTextHandler(&out, nil)), by
			r := b.start(cfg, route)
			b.produce(items("customer-4711", 50)...)
			host := "db-7"
			if by != nil {
				host = "the host"
			}
			reason := "dial postgres://***@" + host + "/orders for [" // the key is the id
			var body string
			b.eventually("readiness says why", func() bool {
				_, body = r.ask("/readyz")
				return strings.Contains(body, reason)
			})
			require.Regexp(t, `^route "charge" holds: payments has been down for \d+s, `+
				`its breaker opened when \d+ of \d+ calls within 1m had failed \(50% of at least 5\): dial`, body)
			require.Equal(t, 1, strings.Count(body, "\n"), "a line a reason: %s", body)
			b.eventually("the log does", func() bool { return strings.Contains(out.String(), `msg="route holds"`) })
			r.stop()

			require.Regexp(t, `msg="breaker opens" dependency=payments failures=\d+ requests=\d+ within=1m0s `+
				`threshold="50% of at least 5" error="dial postgres://\*\*\*@`+host, out.String())
			require.Regexp(t, `msg="route holds" route=charge dependency=payments (class=\w+ )?error="dial postgres://\*\*\*@`+host, out.String())
			for _, text := range []string{body, out.String()} {
				require.NotContains(t, text, "hunter2")
				require.NotContains(t, text, "customer-4711")
				if by != nil {
					require.NotContains(t, text, "db-7")
				}
			}
		})
	}
}

// unready is a transport that does not read what it should.
type unready struct {
	kafka.Transport
	err error
}

func (u unready) Ready() error { return u.err }

func TestReady_SaysWhyAPartitionIsNotRead(t *testing.T) {
	t.Parallel()
	began := time.Now().Add(-42 * time.Second)
	errTopic := errors.New("TOPIC_AUTHORIZATION_FAILED, token=hunter2")
	source := unready{err: errors.Join(
		kafka.JoinProblems([]*kafka.ProblemError{
			{Kind: "partition_error", Topic: "orders", Partition: 3, Since: began, Err: errTopic, Help: "it is tried again"},
			{Kind: "truncated", Topic: "orders", Partition: 1, Since: began, Err: errors.New("the log\nends at 5")},
			{Kind: "group_error", Partition: -1, Since: began, Err: errors.New(strings.Repeat("é", readyReason))},
		}),
		errors.New("password=hunter2"),
	)}
	for want, by := range map[string]func(error) string{
		"TOPIC_AUTHORIZATION_FAILED, token=***": nil,
		"as asked":                              func(error) string { return "as asked" },
	} {
		e := &engine{c: &Consumer{cfg: Config{RedactError: by}}, source: source}
		e.c.engine.Store(e)
		err := e.c.Ready()
		require.ErrorIs(t, err, errTopic)
		got := strings.Split(err.Error(), "\n")
		require.Len(t, got, 4)
		require.True(t, strings.HasPrefix(got[0], "consumer group: group_error for 42s: "), got[0])
		require.LessOrEqual(t, len(got[0]), readyReason+50)
		require.True(t, strings.HasPrefix(got[1], "orders/1: truncated for 42s: "), got[1])
		require.Equal(t, "orders/3: partition_error for 42s: "+want+"; hint: it is tried again", got[2])
		require.NotContains(t, err.Error(), "hunter2")
	}
}

// hinting is an error of a handler's that has a hint.
type hinting struct{ error }

func (hinting) Hint() string { return "card 4111111111111111" }

func TestReady_AsksNoErrorOfAHandlerForAHint(t *testing.T) {
	t.Parallel()
	w := middleware.Wait{Dependency: "shipping", Since: time.Now(), Err: hinting{errors.New("away")}}
	require.Empty(t, remedy(w))
	w.Dependency = fault.DeadLetterTopic
	require.NotEmpty(t, remedy(w))
	for _, name := range []string{middleware.Flood, middleware.RouteStopped} {
		w.Dependency = name
		require.NotContains(t, remedy(w), "4111")
		require.NotEmpty(t, remedy(w), name)
	}
}

package consumer

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/kafka"
)

func TestTopicRetention(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	made := func(t *testing.T) (*Consumer, *bytes.Buffer) {
		t.Helper()
		var out bytes.Buffer
		cfg, route := good(t)
		cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
		c, err := New(cfg, route)
		require.NoError(t, err)
		return c, &out
	}
	kept := func(source, letters time.Duration) topics {
		return topics{
			"orders":     {Name: "orders", Retention: source, CleanupPolicy: "delete"},
			"orders.dlq": {Name: "orders.dlq", Retention: letters, CleanupPolicy: "delete"},
		}
	}

	t.Run("IsShownForWhatIsReadAndInfiniteForEver", func(t *testing.T) {
		t.Parallel()
		c, _ := made(t)
		found := kept(7*day, 14*day)
		found["orders.billing.replay"] = kafka.Topic{Retention: kafka.Forever}
		c.showRetention(found)
		text := scrape(t, c.cfg.Registry)
		require.Contains(t, text, `headrace_topic_retention_seconds{topic="orders"} 604800`+"\n")
		require.Contains(t, text, `headrace_topic_retention_seconds{topic="orders.billing.replay"} +Inf`+"\n")
		require.NotContains(t, text, `topic="orders.dlq"`)
	})

	t.Run("ThatGrowsBeyondTheInboxIsWarnedOf", func(t *testing.T) {
		t.Parallel()
		for name, now := range map[string]topics{
			"Longer": kept(30*day, 14*day), "ForEver": kept(7*day, kafka.Forever),
		} {
			c, out := made(t)
			start := kept(7*day, 14*day)
			c.tellLonger(start, start, now)
			c.tellLonger(start, now, now)
			require.Equal(t, 1, strings.Count(out.String(), "level=WARN"), name)
			require.Contains(t, out.String(), "its inbox forgets after 360h")
		}
	})

	t.Run("ThatShrinksOrStaysIsNot", func(t *testing.T) {
		t.Parallel()
		c, out := made(t)
		start := kept(7*day, 14*day)
		c.tellLonger(start, start, kept(7*day, 14*day))
		c.tellLonger(start, start, kept(day, day))
		require.Empty(t, out.String())
	})

	t.Run("IsAskedForAnew", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		r := b.start(b.config(), effectRoute("post"))
		b.eventually("every partition has a lag before its first record", func() bool {
			_, text := r.ask("/metrics")
			return strings.Count(text, "\nheadrace_partition_lag{") == 8
		})
		now, err := r.c.askRetention(t.Context())
		require.NoError(t, err)
		require.Len(t, now, 3)
		r.stop()
		require.NotContains(t, scrape(t, r.c.cfg.Registry), `topic="orders"`, "nothing is left behind")
	})
}

package consumer

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README's program beside the demo, in one group and database: half of the partitions never reach the other's route.
func TestMembers(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	run := func(group string, routes ...AnyRoute) string {
		t.Helper()
		var out bytes.Buffer
		cfg := b.config()
		cfg.Group, cfg.Logger = group, slog.New(slog.NewTextHandler(&out, nil))
		b.produce(items(group, 1)...)
		r := b.start(cfg, routes...)
		b.outcomes(len(routes))
		r.stop()
		return out.String()
	}
	const warning = "members of a consumer group must run the same routes"

	require.NotContains(t, run("billing", effectRoute("charge")), warning, "alone")
	require.NotContains(t, run("billing", effectRoute("charge")), warning, "the same again")
	out := run("billing", effectRoute("post"), effectRoute("tell"))
	require.Equal(t, 1, strings.Count(out, warning), out)
	require.Contains(t, out, "level=WARN")
	require.Contains(t, out, "group=billing not_here=[charge]")
	out = run("billing", effectRoute("charge"))
	require.Contains(t, out, `group=billing not_here="[post tell]"`)
	require.NotContains(t, run("shipping", effectRoute("charge")), warning, "another group's are not ours")
}

package dedup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/record"
)

func TestRouteConfig_NameThatNoCommandCouldTake(t *testing.T) {
	t.Parallel()
	require.EqualError(t, RouteConfig{Group: "g", Name: "a b/c"}.validate(),
		`route "a b/c" has ' ' in it: '/', spaces and control characters cannot be told apart where group/route is written; `+
			`name it differently, for example "a-b-c"`)
}

// TestMaxAttemptTimeout is the regression of a route whose every BEGIN failed, as if the database were down.
func TestMaxAttemptTimeout(t *testing.T) {
	t.Parallel()

	t.Run("IsWhatPostgresTakesAtMost", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{route: RouteConfig{AttemptTimeout: MaxAttemptTimeout}})
		rs := recs(newOwner(), 3)
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs...)
		const beyond = MaxAttemptTimeout + idleReserve + time.Millisecond
		_, err := b.pool.Exec(t.Context(), "select set_config('idle_in_transaction_session_timeout', $1, true)", ms(beyond))
		require.ErrorContains(t, err, "invalid value for parameter")
	})

	t.Run("RefusesMore", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		_, err := b.in.Route(t.Context(), RouteConfig{Group: "g", Name: "long", AttemptTimeout: MaxAttemptTimeout + 1})
		require.ErrorContains(t, err, "route long: AttemptTimeout (596h31m18.647000001s) is above 596h31m18.647s")
	})
}

package consumer

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/record"
)

func TestLog_SaysWhy(t *testing.T) {
	t.Parallel()
	out, l := logged()
	h := l.hooks()
	h.OnBreaker(record.BreakerInfo{
		Dependency: "payments", From: record.BreakerClosed, To: record.BreakerOpen, Err: errors.New("connection refused"),
		Failures: 12, Requests: 20, MinRequests: 20, FailureRatio: 0.5, Window: time.Minute,
	})
	h.OnBreaker(record.BreakerInfo{Dependency: "payments", From: record.BreakerHalfOpen, To: record.BreakerOpen, Err: errors.New("no such host")})
	h.OnBreaker(record.BreakerInfo{Dependency: "stock", From: record.BreakerClosed, To: record.BreakerOpen})
	require.Contains(t, out.String(), `msg="breaker opens" dependency=payments failures=12 requests=20 within=1m0s threshold="50% of at least 20" error="connection refused"`)
	require.Contains(t, out.String(), `msg="breaker stays open: the probe failed" dependency=payments error="no such host"`)
	require.Contains(t, out.String(), `threshold="its own Trip"`)

	errAway := errors.New("connection refused, " + strings.Repeat("x", loggedMessage))
	h.OnHold(record.HoldInfo{Route: "post", Dependency: "database", Began: true})
	for _, began := range []bool{true, false, false} {
		h.OnHold(record.HoldInfo{Route: "post", Dependency: "database", Began: began, Done: !began, Class: "unavailable", Err: errAway})
	}
	require.Contains(t, out.String(), "msg=\"route holds\" route=post dependency=database\n")
	require.Regexp(t, `msg="route goes on" route=post dependency=database held_for=\S+ class=unavailable error="connection refused, x+…"`, out.String(),
		"the end tells what the beginning did not know")
}

package consumer

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

func TestLog(t *testing.T) {
	t.Parallel()
	t.Run("FloodOfDeadLettersIsALineAMinuteAndReason", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			h := logHooks(slog.New(slog.NewTextHandler(&out, nil)))
			for i := range int64(1000) {
				h.OnDeadLetter(record.DeadLetterInfo{Route: "post", Topic: "orders", Reason: "permanent", Partition: 3, Offset: i})
			}
			h.OnDeadLetter(record.DeadLetterInfo{Route: "post", Topic: "orders", Reason: "panic"})
			require.Equal(t, 2, strings.Count(out.String(), "dead letter"), out.String())
			require.Contains(t, out.String(), "topic=orders partition=3 offset=0")
			<-time.After(time.Minute)
			h.OnDeadLetter(record.DeadLetterInfo{Route: "post", Topic: "orders", Reason: "permanent"})
			require.Contains(t, out.String(), "untold_before=999")
		})
	})
	t.Run("OutageIsOneWarningHoweverManyProbesFail", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		h := logHooks(slog.New(slog.NewTextHandler(&out, nil)))
		change := func(from, to string) {
			h.OnBreaker(record.BreakerInfo{Dependency: "payments", From: from, To: to, Open: 90 * time.Second})
		}
		change(record.BreakerClosed, record.BreakerOpen)
		for range 3 {
			change(record.BreakerOpen, record.BreakerHalfOpen)
			change(record.BreakerHalfOpen, record.BreakerOpen)
		}
		change(record.BreakerOpen, record.BreakerHalfOpen)
		change(record.BreakerHalfOpen, record.BreakerClosed)
		require.Equal(t, 1, strings.Count(out.String(), "level=WARN"), out.String())
		require.Equal(t, 9, strings.Count(out.String(), "\n"), "a line each")
		require.Contains(t, out.String(), `level=INFO msg="breaker closes" dependency=payments open_for=1m30s`)
	})
	t.Run("RouteThatHoldsIsOneLineAndItsEndAnother", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		h := logHooks(slog.New(slog.NewTextHandler(&out, nil)))
		for _, began := range []bool{true, false} {
			for range 300 {
				h.OnHold(record.HoldInfo{Route: "post", Dependency: "database", Began: began})
				h.OnHold(record.HoldInfo{Route: "post", Dependency: middleware.BusyElsewhere, Began: began})
			}
		}
		require.Equal(t, 2, strings.Count(out.String(), "\n"), out.String())
		require.Contains(t, out.String(), "level=WARN msg=\"route holds\" route=post dependency=database")
	})
}

package consumer

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

// logged is a log and what it has written.
func logged() (*lockedBuffer, *eventLog) {
	var out lockedBuffer
	return &out, newEventLog(slog.New(slog.NewTextHandler(&out, nil)))
}

// elapse lets a bubble's time pass, with everything that happens at its end.
func elapse(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestLog(t *testing.T) {
	t.Parallel()
	t.Run("FloodOfDeadLettersIsALineAMinuteAndReason", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			out, l := logged()
			died := func(reason string, offset int64) {
				l.hooks().OnDeadLetter(record.DeadLetterInfo{
					Route: "post", Topic: "orders", Reason: reason, Partition: 3, Offset: offset, Message: fmt.Sprint("no account ", offset),
				})
			}
			for i := range int64(1000) {
				died("permanent", i)
			}
			died("panic", 7)
			require.Equal(t, 2, strings.Count(out.String(), "\n"), out.String())
			require.Contains(t, out.String(), `msg="dead letter" route=post reason=permanent topic=orders partition=3 offset=0 error="no account 0"`)

			elapse(letterInterval)
			require.Equal(t, 3, strings.Count(out.String(), "\n"), out.String())
			require.Contains(t, out.String(), `msg="more dead letters" count=999 within=1m0s route=post reason=permanent `+
				`topic=orders partition=3 offset=999 error="no account 999"`)

			elapse(10 * time.Minute)
			require.Empty(t, l.letters.kinds, "a quiet minute ends it")
			died("permanent", 1000)
			require.Contains(t, out.String(), `msg="dead letter" route=post reason=permanent topic=orders partition=3 offset=1000`)
		})
	})
	t.Run("EachErrorIsToldAtOnceHoweverManyShareAReason", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			out, l := logged()
			died := func(route, fingerprint, message string) {
				l.hooks().OnDeadLetter(record.DeadLetterInfo{Route: route, Reason: "permanent", Fingerprint: fingerprint, Message: message})
			}
			for i := range 2 * maxLetterKinds {
				died("post", fmt.Sprint("f", i), fmt.Sprint("error ", i))
				died("post", fmt.Sprint("f", i), fmt.Sprint("error ", i))
			}
			died("archive", "f0", "error of another route")
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			require.Len(t, lines, maxLetterKinds+2, "a line a kind, and one a route for those beyond")
			for i := range maxLetterKinds + 1 {
				require.Contains(t, lines[i], fmt.Sprintf(`msg="dead letter" route=post reason=permanent topic="" partition=0 offset=0 error="error %d"`, i))
			}
			require.Contains(t, lines[maxLetterKinds+1], `route=archive`)

			elapse(letterInterval)
			require.Equal(t, maxLetterKinds, strings.Count(out.String(), `msg="more dead letters" count=1 `))
			require.Contains(t, out.String(), fmt.Sprintf(`msg="more dead letters" count=%d within=1m0s route=post`, 2*maxLetterKinds-1),
				"none is left out of the counts")
		})
	})
	t.Run("FewDeadLettersAreAllToldBeforeTheEnd", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			out, l := logged()
			for i := range int64(4) {
				l.hooks().OnDeadLetter(record.DeadLetterInfo{Route: "post", Topic: "orders", Reason: "permanent", Offset: i})
			}
			elapse(2 * time.Second)
			l.flush()
			require.Contains(t, out.String(), `msg="more dead letters" count=3 within=2s`)
			before := out.String()
			elapse(time.Hour)
			require.Equal(t, before, out.String(), "no timer is left")
		})
	})
	t.Run("LongErrorIsCutBetweenRunes", func(t *testing.T) {
		t.Parallel()
		out, l := logged()
		l.hooks().OnDeadLetter(record.DeadLetterInfo{Message: "x" + strings.Repeat("é", loggedMessage)})
		l.flush()
		require.Contains(t, out.String(), "error=x"+strings.Repeat("é", loggedMessage/2-1)+"…\n")
	})
	t.Run("RebalanceIsOneLineHoweverManyPartitions", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			out, l := logged()
			changed := func(event string, partitions ...int32) {
				for _, p := range partitions {
					for _, topic := range []string{"orders.billing.replay", "orders"} {
						l.hooks().OnClaim(record.ClaimInfo{Topic: topic, Partition: p, Event: event})
					}
				}
			}
			changed("assigned", 3, 0, 1, 2)
			require.Empty(t, out.String(), "there may be more")
			elapse(claimQuiet)
			require.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
			require.Contains(t, out.String(), `msg="partitions assigned" partitions="orders [0 1 2 3], orders.billing.replay [0 1 2 3]"`)

			changed("revoked", 2)
			changed("assigned", 4)
			require.Contains(t, out.String(), `msg="partitions revoked" partitions="orders [2], orders.billing.replay [2]"`, "in order")
			l.flush()
			require.Contains(t, out.String(), `msg="partitions assigned" partitions="orders [4], orders.billing.replay [4]"`)
			before := out.String()
			elapse(time.Hour)
			require.Equal(t, before, out.String(), "no timer is left")
		})
	})
	t.Run("OutageIsOneWarningHoweverManyProbesFail", func(t *testing.T) {
		t.Parallel()
		out, l := logged()
		h := l.hooks()
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
		out, l := logged()
		h := l.hooks()
		for _, began := range []bool{true, false} {
			for range 300 {
				h.OnHold(record.HoldInfo{Route: "post", Dependency: "database", Began: began, Done: !began})
				h.OnHold(record.HoldInfo{Route: "post", Dependency: middleware.BusyElsewhere, Began: began})
			}
		}
		require.Equal(t, 2, strings.Count(out.String(), "\n"), out.String())
		require.Contains(t, out.String(), "level=WARN msg=\"route holds\" route=post dependency=database")
	})

	t.Run("GoesOnIsSaidOfPartitionsThatWereTakenAway", func(t *testing.T) {
		t.Parallel()
		out, l := logged()
		for _, began := range []bool{true, false} {
			l.hold(record.HoldInfo{Route: "post", Dependency: "database", Began: began})
		}
		require.Contains(t, out.String(), "route holds")
		require.NotContains(t, out.String(), "route goes on")
	})
}

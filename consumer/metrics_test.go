package consumer

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// gathered is what a scrape shows of a consumer with one route, after the hooks were called.
func gathered(t *testing.T, call func(record.Hooks)) *prometheus.Registry {
	t.Helper()
	m := newMetrics([]spec{{name: "post"}, {name: "charge", call: &calling{dependency: dependency(t, "payments")}}})
	m.retention.WithLabelValues("orders").Set(1)
	if call != nil {
		call(m.hooks())
	}
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(m))
	return reg
}

func TestMetrics(t *testing.T) {
	t.Parallel()

	t.Run("ObeyTheConventions", func(t *testing.T) {
		t.Parallel()
		reg := gathered(t, func(record.Hooks) {})
		require.NoError(t, reg.Register(newPartitions(func() []kafka.PartitionStats {
			return []kafka.PartitionStats{{Topic: "orders", Partition: 1}}
		})))
		problems, err := testutil.GatherAndLint(reg)
		require.NoError(t, err)
		require.Empty(t, problems)
	})

	t.Run("AreThereBeforeAnythingHappens", func(t *testing.T) {
		t.Parallel()
		reg := gathered(t, func(record.Hooks) {})
		for name, series := range map[string]int{
			"headrace_records_total": 2 * 5, "headrace_replayed_total": 2 * 5, "headrace_attempts_total": 2 * 7,
			"headrace_inbox_answers_total": 2 * 9, "headrace_dead_letters_total": 2 * 8, "headrace_commit_groups_total": 2 * 3,
			"headrace_holding": 2*11 + 1, "headrace_hold_seconds_total": 2*11 + 1,
			"headrace_claims_total": 4, "headrace_offsets_lost_total": 2, "headrace_reports_total": len(record.ReportKinds),
			"headrace_record_duration_seconds": 2, "headrace_attempt_duration_seconds": 2,
			"headrace_commit_group_records": 2, "headrace_commit_group_duration_seconds": 2,
			"headrace_calls_total": 5, "headrace_call_duration_seconds": 1, "headrace_breaker_state": 3,
			"headrace_breaker_trips_total": 1, "headrace_breaker_open_seconds_total": 1,
		} {
			n, err := testutil.GatherAndCount(reg, name)
			require.NoError(t, err)
			require.Equal(t, series, n, name)
		}
	})

	t.Run("OfAForeignRecordAreNone", func(t *testing.T) {
		t.Parallel()
		reg := gathered(t, func(h record.Hooks) {
			h.OnSettle(record.SettleInfo{Route: "post", Outcome: record.Foreign, Replay: true})
		})
		require.NotContains(t, scrape(t, reg), "foreign")
	})

	t.Run("ShowThePartitionsThatAreClaimedNow", func(t *testing.T) {
		t.Parallel()
		stats := []kafka.PartitionStats{{
			Topic: "orders", Partition: 3, Lag: 17, InFlight: 5, InFlightBytes: 900,
			OldestAge: 2 * time.Second, Behind: time.Hour, Paused: true,
		}, {Topic: "orders", Partition: 4, Lag: -1}}
		reg := prometheus.NewPedanticRegistry()
		require.NoError(t, reg.Register(newPartitions(func() []kafka.PartitionStats { return stats })))
		text := scrape(t, reg)
		for _, want := range []string{
			`headrace_partition_lag{partition="3",topic="orders"} 17`,
			`headrace_partition_lag_seconds{partition="3",topic="orders"} 3600`,
			`headrace_in_flight_records{partition="3",topic="orders"} 5`,
			`headrace_in_flight_bytes{partition="3",topic="orders"} 900`,
			`headrace_oldest_in_flight_age_seconds{partition="3",topic="orders"} 2`,
			`headrace_partition_paused{partition="3",topic="orders"} 1`,
		} {
			require.Contains(t, text, want+"\n")
		}
		require.NotContains(t, text, `headrace_partition_lag{partition="4"`, "unknown is not zero")
		stats = nil
		require.NotContains(t, scrape(t, reg), "headrace_", "a partition that went away leaves nothing behind")
	})
}

func TestMetrics_Move(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		call func(record.Hooks)
		want string // a line of the scrape
	}{
		"Settle": {
			func(h record.Hooks) {
				h.OnSettle(record.SettleInfo{Route: "post", Outcome: record.Duplicate, Age: time.Second})
			},
			`headrace_records_total{outcome="duplicate",route="post"} 1`,
		},
		"SettleTime": {
			func(h record.Hooks) {
				h.OnSettle(record.SettleInfo{Route: "post", Outcome: record.Effected, Age: 2 * time.Second})
			},
			`headrace_record_duration_seconds_sum{route="post"} 2`,
		},
		"AttemptThatSucceeded": {
			func(h record.Hooks) { h.OnAttempt(record.AttemptInfo{Route: "post", Took: time.Second}) },
			`headrace_attempts_total{class="none",outcome="succeeded",route="post"} 1`,
		},
		"AttemptThatFailed": {
			func(h record.Hooks) { h.OnAttempt(record.AttemptInfo{Route: "post", Class: "transient"}) },
			`headrace_attempts_total{class="transient",outcome="failed",route="post"} 1`,
		},
		"AttemptTime": {
			func(h record.Hooks) { h.OnAttempt(record.AttemptInfo{Route: "post", Took: 3 * time.Second}) },
			`headrace_attempt_duration_seconds_sum{route="post"} 3`,
		},
		"Inbox": {
			func(h record.Hooks) { h.OnInbox(record.InboxInfo{Route: "post", Answer: "dead_own", Records: 4}) },
			`headrace_inbox_answers_total{answer="dead_own",route="post"} 4`,
		},
		"Group": {
			func(h record.Hooks) {
				h.OnGroup(record.GroupInfo{Route: "post", Records: 7, Result: "committed", Took: time.Second})
			},
			`headrace_commit_groups_total{result="committed",route="post"} 1`,
		},
		"GroupRecords": {
			func(h record.Hooks) { h.OnGroup(record.GroupInfo{Route: "post", Records: 7, Result: "committed"}) },
			`headrace_commit_group_records_sum{route="post"} 7`,
		},
		"GroupTime": {
			func(h record.Hooks) {
				h.OnGroup(record.GroupInfo{Route: "post", Result: "committed", Took: time.Second})
			},
			`headrace_commit_group_duration_seconds_sum{route="post"} 1`,
		},
		"HoldBegins": {
			func(h record.Hooks) { h.OnHold(record.HoldInfo{Route: "post", Dependency: "database", Began: true}) },
			`headrace_holding{dependency="database",route="post"} 1`,
		},
		"HoldEnds": {
			func(h record.Hooks) {
				h.OnHold(record.HoldInfo{Route: "post", Dependency: "database", Took: 5 * time.Second})
			},
			`headrace_hold_seconds_total{dependency="database",route="post"} 5`,
		},
		"HoldForAnUnknownDependency": {
			func(h record.Hooks) {
				h.OnHold(record.HoldInfo{Route: "post", Dependency: "customer 4711", Began: true})
			},
			`headrace_holding{dependency="other",route="post"} 1`,
		},
		"DeadLetter": {
			func(h record.Hooks) { h.OnDeadLetter(record.DeadLetterInfo{Route: "post", Reason: "panic"}) },
			`headrace_dead_letters_total{reason="panic",route="post"} 1`,
		},
		"SettleOfAReplay": {
			func(h record.Hooks) {
				h.OnSettle(record.SettleInfo{Route: "post", Outcome: record.Effected, Replay: true})
			},
			`headrace_replayed_total{outcome="effected",route="post"} 1`,
		},
		"SettleThatIsNoReplay": {
			func(h record.Hooks) { h.OnSettle(record.SettleInfo{Route: "post", Outcome: record.Effected}) },
			`headrace_replayed_total{outcome="effected",route="post"} 0`,
		},
		"HoldForACalledDependency": {
			func(h record.Hooks) {
				h.OnHold(record.HoldInfo{Route: "charge", Dependency: "payments", Began: true})
			},
			`headrace_holding{dependency="payments",route="charge"} 1`,
		},
		"Call": {
			func(h record.Hooks) {
				h.OnCall(record.CallInfo{Dependency: "payments", Route: "charge", Outcome: record.CallFailed})
			},
			`headrace_calls_total{dependency="payments",outcome="failed",route="charge"} 1`,
		},
		"CallOutsideOfARoute": {
			func(h record.Hooks) {
				h.OnCall(record.CallInfo{Dependency: "payments", Outcome: record.CallSucceeded})
			},
			`headrace_calls_total{dependency="payments",outcome="succeeded",route=""} 1`,
		},
		"CallOfAnotherConsumersRoute": {
			func(h record.Hooks) {
				h.OnCall(record.CallInfo{Dependency: "payments", Route: "refund", Outcome: record.CallSucceeded})
			},
			`headrace_calls_total{dependency="payments",outcome="succeeded",route="other"} 1`,
		},
		"CallTime": {
			func(h record.Hooks) {
				h.OnCall(record.CallInfo{Dependency: "payments", Route: "charge", Outcome: record.CallSucceeded, Took: 2 * time.Second})
			},
			`headrace_call_duration_seconds_sum{dependency="payments"} 2`,
		},
		"CallThatWasRefusedTakesNoTime": {
			func(h record.Hooks) {
				h.OnCall(record.CallInfo{Dependency: "payments", Route: "charge", Outcome: record.CallRefused})
			},
			`headrace_call_duration_seconds_count{dependency="payments"} 0`,
		},
		"BreakerOpens": {
			func(h record.Hooks) {
				h.OnBreaker(record.BreakerInfo{Dependency: "payments", From: record.BreakerClosed, To: record.BreakerOpen})
			},
			`headrace_breaker_trips_total{dependency="payments"} 1`,
		},
		"ProbeThatFailsIsNoTrip": {
			func(h record.Hooks) {
				h.OnBreaker(record.BreakerInfo{Dependency: "payments", From: record.BreakerHalfOpen, To: record.BreakerOpen})
			},
			`headrace_breaker_trips_total{dependency="payments"} 0`,
		},
		"Claim": {
			func(h record.Hooks) { h.OnClaim(record.ClaimInfo{Event: "revoked"}) }, `headrace_claims_total{event="revoked"} 1`,
		},
		"Report": {
			func(h record.Hooks) { h.OnReport(record.Report{Kind: "stuck_record"}) }, `headrace_reports_total{kind="stuck_record"} 1`,
		},
		"ReportOfALoss": {
			func(h record.Hooks) {
				h.OnReport(record.Report{Kind: record.ReportOffsetOutOfRange, Lost: record.LostRange(5, 50)})
			},
			`headrace_offsets_lost_total{kind="offset_out_of_range"} 45`,
		},
		"ReportOfAKindThatCameLater": {
			func(h record.Hooks) { h.OnReport(record.Report{Kind: record.ReportTransactionEnded}) },
			`headrace_reports_total{kind="transaction_ended"} 1`,
		},
		"ReportOfAnUnknownKind": {
			func(h record.Hooks) { h.OnReport(record.Report{Kind: "news"}) }, `headrace_reports_total{kind="other"} 1`,
		},
	} {
		t.Run("On"+name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, scrape(t, gathered(t, tc.call)), tc.want+"\n")
		})
	}
}

// scrape is the text of a registry.
func scrape(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	return w.Body.String()
}

func TestHooks(t *testing.T) {
	t.Parallel()

	t.Run("EverySetIsCalledInOrder", func(t *testing.T) {
		t.Parallel()
		var calls []string
		set := func(name string) record.Hooks {
			return record.Hooks{OnSettle: func(record.SettleInfo) { calls = append(calls, name) }}
		}
		joined(set("a"), record.Hooks{}, set("b")).OnSettle(record.SettleInfo{})
		require.Equal(t, []string{"a", "b"}, calls)
	})

	t.Run("AHookThatNobodyHasStaysNil", func(t *testing.T) {
		t.Parallel()
		require.Nil(t, joined(record.Hooks{}, record.Hooks{}).OnAttempt)
	})

	t.Run("AReportIsOneLineWithWhatItKnows", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		newEventLog(slog.New(slog.NewTextHandler(&out, nil))).hooks().OnReport(record.Report{
			Kind: "stuck_record", Route: "post", Topic: "orders", Partition: 3, Offset: 42, Age: time.Minute,
			Err: errors.New("boom"), Hint: "look at it",
		})
		require.Equal(t, 1, strings.Count(out.String(), "\n"))
		for _, want := range []string{
			"level=WARN", "msg=stuck_record", "route=post", "topic=orders", "partition=3", "offset=42", "age=1m", "error=boom", `hint="look at it"`,
		} {
			require.Contains(t, out.String(), want)
		}
	})

	t.Run("AReportLeavesOutWhatItDoesNotKnow", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		newEventLog(slog.New(slog.NewTextHandler(&out, nil))).hooks().OnReport(record.Report{Kind: "group_error", Topic: "orders", Partition: -1, Offset: -1})
		require.Contains(t, out.String(), "topic=orders")
		for _, not := range []string{"partition", "offset", "route", "age", "error", "hint"} {
			require.NotContains(t, out.String(), not+"=")
		}
	})
}

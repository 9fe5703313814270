package downstream_test

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	const (
		ms = time.Millisecond
		s  = time.Second
	)
	ambiguous := fault.Fault{Class: fault.ClassAmbiguous, Rule: "sent"}
	transient := fault.Fault{Class: fault.ClassTransient, Rule: "not sent"}
	refused := func(reason error) fault.Fault {
		return new(fault.Classifier).ClassifyCall(t.Context(), &fault.RefusedError{Dependency: "payments", Reason: reason})
	}
	asks := func(after time.Duration) fault.Fault {
		return fault.Fault{Class: fault.ClassTransient, Rule: "http 429", RetryAfter: after}
	}
	for _, r := range []struct {
		name   string
		signal downstream.Signal
		wait   time.Duration
		why    downstream.Reason
	}{
		{"AnAmbiguousPost", downstream.Signal{Fault: ambiguous, Method: http.MethodPost}, 0, downstream.UnknownOutcome},
		{"AnAmbiguousPatch", downstream.Signal{Fault: ambiguous, Method: http.MethodPatch}, 0, downstream.UnknownOutcome},
		{"SomethingThatIsNoRequest", downstream.Signal{Fault: ambiguous}, 0, downstream.UnknownOutcome},
		{"WithAKeyOrAQuestion", downstream.Signal{Fault: ambiguous, Method: http.MethodPost, Repeatable: true}, 100 * ms, ""},
		{"Get", downstream.Signal{Fault: ambiguous, Method: http.MethodGet}, 100 * ms, ""},
		{"Head", downstream.Signal{Fault: ambiguous, Method: http.MethodHead}, 100 * ms, ""},
		{"Options", downstream.Signal{Fault: ambiguous, Method: http.MethodOptions}, 100 * ms, ""},
		{"Put", downstream.Signal{Fault: ambiguous, Method: http.MethodPut}, 100 * ms, ""},
		{"Delete", downstream.Signal{Fault: ambiguous, Method: http.MethodDelete}, 100 * ms, ""},
		{
			"AKeyThatWasUsedForAnotherRequest",
			downstream.Signal{Fault: fault.Fault{Class: fault.ClassAmbiguous, Rule: "http 422"}, Repeatable: true},
			0, downstream.UnknownOutcome,
		},
		{"APostThatWasNotSent", downstream.Signal{Fault: transient, Method: http.MethodPost}, 100 * ms, ""},
		{"Busy", downstream.Signal{Fault: fault.Fault{Class: fault.ClassBusy}}, 100 * ms, ""},
		{"Permanent", downstream.Signal{Fault: fault.Fault{Class: fault.ClassPermanent}, Repeatable: true}, 0, downstream.NotTransient},
		{"Cancelled", downstream.Signal{Fault: fault.Fault{Class: fault.ClassCancelled}, Repeatable: true}, 0, downstream.NotTransient},
		{"Credentials", downstream.Signal{Fault: fault.Fault{Class: fault.ClassUnavailable, Rule: "http 401"}}, 0, downstream.NotTransient},
		{"ABreakerInside", downstream.Signal{Fault: refused(fault.ErrBreakerOpen)}, 0, downstream.Open},
		{"TokensInside", downstream.Signal{Fault: refused(fault.ErrNoRetryTokens)}, 0, downstream.RetryTokens},
		{"ABulkheadInside", downstream.Signal{Fault: refused(fault.ErrBulkheadFull)}, 0, downstream.NotTransient},

		{"TheSecondWaitIsTwiceAsLong", downstream.Signal{Fault: transient, Attempt: 2}, 200 * ms, ""},
		{"TheLastOne", downstream.Signal{Fault: transient, Attempt: 3}, 0, downstream.MaxAttempts},
		{"MoreThanTheLastOne", downstream.Signal{Fault: transient, Attempt: 7}, 0, downstream.MaxAttempts},
		{"TheWaitStopsGrowing", downstream.Signal{Fault: transient, Attempt: 60, Retry: downstream.RetryConfig{Attempts: 100, Base: 200 * ms, Cap: 2 * s}}, s, ""},

		{"TooLittleTime", downstream.Signal{Fault: transient, Left: 100 * ms}, 0, downstream.DeadlineExhausted},
		{"JustEnough", downstream.Signal{Fault: transient, Left: 101 * ms}, 100 * ms, ""},
		{"NoTimeAtAll", downstream.Signal{Fault: transient, Left: -s}, 0, downstream.DeadlineExhausted},
		{"RetryAfterIsAFloor", downstream.Signal{Fault: asks(7 * s)}, 7*s + 100*ms, ""},
		{"RetryAfterAloneFits", downstream.Signal{Fault: asks(7 * s), Left: 7*s + 50*ms}, 7 * s, ""},
		{"RetryAfterDoesNotFit", downstream.Signal{Fault: asks(7 * s), Left: 7 * s}, 0, downstream.DeadlineExhausted},
		{"ANegativeRetryAfterIsNone", downstream.Signal{Fault: asks(-7 * s)}, 100 * ms, ""},
		{"ForEver", downstream.Signal{Fault: asks(math.MaxInt64)}, 0, downstream.DeadlineExhausted},

		{"TheBreakerIsOpen", downstream.Signal{Fault: transient, BreakerOpen: true}, 0, downstream.Open},
		{"NoTokens", downstream.Signal{Fault: transient, NoTokens: true}, 0, downstream.RetryTokens},
		{"WhatIsUnknownComesFirst", downstream.Signal{Fault: ambiguous, Attempt: 3, Left: -s, BreakerOpen: true, NoTokens: true}, 0, downstream.UnknownOutcome},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			in := r.signal
			if in.Retry.Attempts == 0 {
				in.Retry = downstream.RetryConfig{Attempts: 3, Base: 200 * ms, Cap: 2 * s}
			}
			if in.Attempt == 0 {
				in.Attempt = 1
			}
			if in.Left == 0 {
				in.Left = downstream.NoLimit
			}
			in.Random = 0.5
			require.Equal(t, downstream.Decision{Again: r.why == "", Wait: r.wait, Reason: r.why}, downstream.Plan(in))
		})
	}
}

// Whatever is put into it: a wait that is neither negative nor longer than the time left, and a reason for every no.
func FuzzPlan(f *testing.F) {
	f.Add(uint8(1), int64(7e9), "POST", true, 1, int64(1e10), false, false, uint16(1<<15))
	f.Fuzz(func(t *testing.T, class uint8, after int64, method string, repeatable bool, attempt int, left int64, open, spent bool, random uint16) {
		s := downstream.Signal{
			Retry: downstream.RetryConfig{Attempts: 3, Base: time.Second, Cap: 10 * time.Second},
			Fault: fault.Fault{Class: fault.Class(class), RetryAfter: time.Duration(after)}, Method: method, Repeatable: repeatable,
			Attempt: attempt, Left: time.Duration(left), BreakerOpen: open, NoTokens: spent, Random: float64(random) / (1 << 16),
		}
		d := downstream.Plan(s)
		require.Equal(t, d.Again, d.Reason == "")
		require.GreaterOrEqual(t, d.Wait, time.Duration(0))
		if d.Again {
			require.Less(t, d.Wait, s.Left)
			require.GreaterOrEqual(t, d.Wait, s.Fault.RetryAfter)
			require.Less(t, attempt, 3)
		}
		require.Equal(t, d, downstream.Plan(s), "it depends on nothing else")
	})
}

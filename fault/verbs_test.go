package fault_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
)

func TestVerbs(t *testing.T) {
	t.Parallel()
	check(t, []row{
		{name: "Permanent", err: fault.Permanent(pg("40001")), class: fault.ClassPermanent, rule: "verb permanent", split: true, call: fault.ClassPermanent},
		{name: "Transient", err: fault.Transient(pg("23505")), class: fault.ClassTransient, rule: "verb transient"},
		{name: "Ambiguous", err: fault.Ambiguous(errPlain), class: fault.ClassAmbiguous, rule: "verb ambiguous"},
		{name: "Busy", err: fault.Busy(errPlain), class: fault.ClassBusy, rule: "verb busy"},
		{name: "RetryAfter", err: fault.RetryAfter(errPlain, time.Second), class: fault.ClassTransient, rule: "verb retry after"},
		{name: "Unavailable", err: fault.Unavailable(errPlain, "payments"), class: fault.ClassUnavailable, dep: "payments", rule: "verb unavailable"},
		{name: "UnavailableOfNobody", err: fault.Unavailable(errPlain, ""), class: fault.ClassUnavailable, dep: fault.Database, rule: "verb unavailable"},
		{name: "Say", err: fault.Say(errPlain, fault.Fault{Class: fault.ClassBusy, Rule: "mine"}), class: fault.ClassBusy, rule: "mine"},
		{name: "ParkWhereNobodyParks", err: fault.Park(fault.Permanent(errPlain), time.Hour), class: fault.ClassTransient, rule: "verb park"},
		{name: "TheOutermostCounts", err: fault.Permanent(fmt.Errorf("a: %w", fault.Transient(errPlain))), class: fault.ClassPermanent, rule: "verb permanent"},
		{name: "TheOutermostCountsOverPark", err: fault.Permanent(fault.Park(errPlain, 1)), class: fault.ClassPermanent, rule: "verb permanent"},
		{name: "AVerbBeneathAKnownError", err: &fault.RefusedError{Dependency: "x", Reason: fault.Busy(errPlain)}, class: fault.ClassBusy, rule: "verb busy"},
	})

	t.Run("NilStaysNil", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, fault.Permanent(nil))
		require.NoError(t, fault.Transient(nil))
		require.NoError(t, fault.Ambiguous(nil))
		require.NoError(t, fault.Busy(nil))
		require.NoError(t, fault.RetryAfter(nil, time.Second))
		require.NoError(t, fault.Unavailable(nil, "payments"))
		require.NoError(t, fault.Park(nil, time.Second))
		require.NoError(t, fault.Say(nil, fault.Fault{}))
	})
	t.Run("TheCauseAndItsTextStay", func(t *testing.T) {
		t.Parallel()
		for _, err := range []error{fault.Permanent(errPlain), fault.Park(errPlain, 1), fault.RetryAfter(errPlain, 1)} {
			require.ErrorIs(t, err, errPlain)
			require.EqualError(t, err, errPlain.Error())
		}
	})
	t.Run("AFloorIsNeverNegative", func(t *testing.T) {
		t.Parallel()
		var c fault.Classifier
		require.Equal(t, time.Second, c.Classify(context.Background(), fault.RetryAfter(errPlain, time.Second)).RetryAfter)
		require.Zero(t, c.Classify(context.Background(), fault.RetryAfter(errPlain, -time.Second)).RetryAfter)
		require.Zero(t, c.Classify(context.Background(), fault.Park(errPlain, -time.Second)).RetryAfter)
	})
}

func TestAsSkip(t *testing.T) {
	t.Parallel()
	skip := fault.Skip("a test order")
	for name, err := range map[string]error{
		"Bare":    skip,
		"Wrapped": fmt.Errorf("a: %w", fmt.Errorf("b: %w", skip)),
		"Twice":   errors.Join(skip, fault.Skip("too old")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, ok := fault.AsSkip(err)
			require.True(t, ok)
			require.Equal(t, "a test order", found.Reason)
			require.Equal(t, fault.Fault{Class: fault.ClassPermanent, Rule: "verb skip"},
				new(fault.Classifier).Classify(context.Background(), err), "whoever does not ask loses nothing")
		})
	}
	for name, err := range map[string]error{
		"Nil":                  nil,
		"NoSkip":               errPlain,
		"BesideAFailure":       errors.Join(skip, errPlain),
		"BesideAFailureInside": fmt.Errorf("%w: %w", errPlain, fmt.Errorf("a: %w", skip)),
		"UnderAVerb":           fault.Permanent(skip),
		"UnderPark":            fault.Park(skip, time.Second),
		"EmptyJoin":            manyError{},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, ok := fault.AsSkip(err)
			require.False(t, ok)
		})
	}
}

func TestAsPark(t *testing.T) {
	t.Parallel()
	park := fault.Park(fault.Permanent(errPlain), time.Hour)
	for name, err := range map[string]error{
		"Bare":                   park,
		"Wrapped":                fmt.Errorf("a: %w", park),
		"BesideASentinel":        fmt.Errorf("%w: %w", errPlain, park),
		"BesideAFailedOperation": errors.Join(pg("25P02"), park),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, ok := fault.AsPark(err)
			require.True(t, ok)
			require.Equal(t, time.Hour, found.Delay)
		})
	}
	for name, err := range map[string]error{
		"Nil":              nil,
		"NoPark":           errPlain,
		"UnderAVerb":       fault.Transient(park),
		"BesideAnyVerb":    errors.Join(park, fault.Ambiguous(errPlain)),
		"BesideASecondOne": errors.Join(park, fault.Park(errPlain, time.Second)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, ok := fault.AsPark(err)
			require.False(t, ok)
		})
	}
}

func TestSaid(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		fault.Say(errPlain, fault.Fault{}), fault.Skip("old"), fault.Park(errPlain, 1),
		errors.Join(pg("40001"), fmt.Errorf("a: %w", fault.Busy(errPlain))),
		fault.Transient(&fault.PanicError{}),
	} {
		require.True(t, fault.Said(err), "%v", err)
	}
	for _, err := range []error{nil, errPlain, pg("40001"), &fault.RefusedError{Reason: errPlain}, &fault.PanicError{Value: fault.Skip("old")}} {
		require.False(t, fault.Said(err), "%v", err)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	refused := func(reason error) error {
		return &fault.RefusedError{Dependency: "payments", Reason: reason, RetryAfter: 3 * time.Second}
	}
	check(t, []row{
		{name: "BreakerOpen", err: refused(fault.ErrBreakerOpen), class: fault.ClassUnavailable, dep: "payments", rule: "breaker open"},
		{name: "BulkheadFull", err: refused(fault.ErrBulkheadFull), class: fault.ClassUnavailable, dep: "payments", rule: "bulkhead full"},
		{name: "NoRetryTokens", err: refused(fault.ErrNoRetryTokens), class: fault.ClassUnavailable, dep: "payments", rule: "no retry tokens"},
		{name: "AnotherReason", err: refused(errPlain), class: fault.ClassUnavailable, dep: "payments", rule: "refused"},
		{name: "TheBareSentinel", err: fault.ErrBreakerOpen, class: fault.ClassUnavailable, dep: fault.Network, rule: "breaker open"},
	})
	err := refused(fault.ErrBreakerOpen)
	require.EqualError(t, err, "payments: circuit breaker open")
	require.ErrorIs(t, err, fault.ErrBreakerOpen)
	require.Equal(t, 3*time.Second, new(fault.Classifier).Classify(context.Background(), err).RetryAfter)
}

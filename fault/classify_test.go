package fault_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
)

var errRevoked = fmt.Errorf("partition revoked: %w", context.Canceled)

func cancelled(t *testing.T, cause error) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	return ctx
}

func expired(t *testing.T, cause error) context.Context {
	t.Helper()
	ctx, cancel := context.WithDeadlineCause(t.Context(), time.Unix(0, 0), cause)
	t.Cleanup(cancel)
	return ctx
}

func TestContext(t *testing.T) {
	t.Parallel()
	attempt, ended := expired(t, nil), cancelled(t, errRevoked)
	for _, r := range []struct {
		name  string
		ctx   context.Context
		err   error
		apply fault.Class
		call  fault.Class
		rule  string
	}{
		{"EndedDeliveryBeatsAVerb", ended, fault.Permanent(errPlain), fault.ClassCancelled, fault.ClassCancelled, "delivery ended"},
		{"EndedDeliveryBeatsAnyError", ended, pg("23505"), fault.ClassCancelled, fault.ClassCancelled, "delivery ended"},
		{"EndedByATimerWhoseCauseIsACancellation", expired(t, errRevoked), errPlain, fault.ClassCancelled, fault.ClassCancelled, "delivery ended"},
		{"AttemptDeadlineAndAnErrorThatSaysNothing", attempt, errPlain, fault.ClassTransient, fault.ClassAmbiguous, "attempt deadline"},
		{"AttemptDeadlineAsTheError", attempt, attempt.Err(), fault.ClassTransient, fault.ClassAmbiguous, "deadline"},
		{"AttemptDeadlineDoesNotHideAVerb", attempt, fault.Permanent(errPlain), fault.ClassPermanent, fault.ClassPermanent, "verb permanent"},
		{"AttemptDeadlineDoesNotHideAConstraint", attempt, pg("23505"), fault.ClassPermanent, fault.ClassPermanent, "sqlstate 23505"},
		{"AttemptDeadlineCancelsAStatement", attempt, pg("57014"), fault.ClassTransient, fault.ClassTransient, "sqlstate 57014"},
		{"AChildThatTheHandlerCancelled", t.Context(), ended.Err(), fault.ClassTransient, fault.ClassAmbiguous, "cancelled by the handler"},
		{"AChildThatTheHandlerTimed", t.Context(), attempt.Err(), fault.ClassTransient, fault.ClassAmbiguous, "deadline"},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			var c fault.Classifier
			require.Equal(t, fault.Fault{Class: r.apply, Rule: r.rule}, c.Classify(r.ctx, r.err))
			require.Equal(t, fault.Fault{Class: r.call, Rule: r.rule}, c.ClassifyCall(r.ctx, r.err))
		})
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	var (
		ambiguous   = fault.Ambiguous(errPlain)
		unavailable = fault.Unavailable(errPlain, "payments")
		permanent   = fault.Permanent(errPlain)
		busy        = fault.Busy(errPlain)
		transient   = fault.Transient(errPlain)
	)
	for _, r := range []struct {
		name string
		err  error
		want fault.Class
	}{
		{"PermanentBesideTransient", errors.Join(transient, permanent), fault.ClassPermanent},
		{"AmbiguousBesideAll", errors.Join(transient, permanent, unavailable, busy, ambiguous), fault.ClassAmbiguous},
		{"AnOutageIsNotMadeFatalByWhatFollowsFromIt", errors.Join(permanent, unavailable, transient), fault.ClassUnavailable},
		{"BusyBesideTransient", errors.Join(busy, transient), fault.ClassBusy},
		{"AVerbSpeaksOnlyForItsBranch", errors.Join(transient, pg("23505")), fault.ClassPermanent},
		{"AVerbAroundTheJoinSpeaksForAllOfIt", fault.Transient(errors.Join(permanent, ambiguous)), fault.ClassTransient},
		{"AnErrorThatSaysNothingDecidesNothing", errors.Join(errPlain, transient, errPlain), fault.ClassTransient},
		{"OnlyErrorsThatSayNothing", errors.Join(errPlain, errPlain), fault.ClassPermanent},
		{"ASkipHidesNoError", errors.Join(fault.Skip("old"), transient), fault.ClassTransient},
		{"ASkipHidesNoUnknownError", errors.Join(fault.Skip("old"), errPlain), fault.ClassPermanent},
		{"JoinsInJoins", errors.Join(errors.Join(transient, errors.Join(busy, permanent)), errPlain), fault.ClassPermanent},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, r.want.String(), new(fault.Classifier).Classify(t.Context(), r.err).Class.String())
		})
	}

	t.Run("TheLongestFloorCounts", func(t *testing.T) {
		t.Parallel()
		err := errors.Join(fault.RetryAfter(errPlain, 5*time.Second), unavailable)
		require.Equal(t,
			fault.Fault{Class: fault.ClassUnavailable, Dependency: "payments", RetryAfter: 5 * time.Second, Rule: "verb unavailable"},
			new(fault.Classifier).Classify(t.Context(), err))
	})
}

// ruleFor knows one error.
func ruleFor(target error, f fault.Fault) fault.Rule {
	return func(err error) (fault.Fault, bool) { return f, errors.Is(err, target) }
}

func TestRules(t *testing.T) {
	t.Parallel()
	errQuota := errors.New("quota spent")
	quota := ruleFor(errQuota, fault.Fault{Class: fault.ClassUnavailable, Dependency: "payments", Rule: "quota"})

	t.Run("TheFirstThatKnowsDecides", func(t *testing.T) {
		t.Parallel()
		c := fault.Classifier{Rules: []fault.Rule{
			ruleFor(errPlain, fault.Fault{Class: fault.ClassBusy}), quota,
			ruleFor(errQuota, fault.Fault{Class: fault.ClassTransient}),
		}}
		require.Equal(t, "quota", c.Classify(t.Context(), fmt.Errorf("a: %w", errQuota)).Rule)
	})
	t.Run("ARuleComesBeforeTheBuiltInOnes", func(t *testing.T) {
		t.Parallel()
		late := fault.Classifier{Rules: []fault.Rule{func(err error) (fault.Fault, bool) {
			var pg *pgconn.PgError
			return fault.Fault{Class: fault.ClassTransient, Rule: "parent comes later"}, errors.As(err, &pg) && pg.Code == "23503"
		}}}
		require.Equal(t, "parent comes later", late.Classify(t.Context(), pg("23503")).Rule)
		require.Equal(t, "sqlstate 23505", late.Classify(t.Context(), pg("23505")).Rule)
	})
	t.Run("AVerbComesBeforeARule", func(t *testing.T) {
		t.Parallel()
		c := fault.Classifier{Rules: []fault.Rule{quota}}
		require.Equal(t, "verb busy", c.Classify(t.Context(), fault.Busy(errQuota)).Rule)
	})
	t.Run("ARuleThatKnowsOneBranchDoesNotSilenceTheOther", func(t *testing.T) {
		t.Parallel()
		c := fault.Classifier{Rules: []fault.Rule{ruleFor(errQuota, fault.Fault{Class: fault.ClassTransient, Rule: "quota"})}}
		require.Equal(t, fault.ClassPermanent, c.Classify(t.Context(), errors.Join(errQuota, pg("23505"))).Class)
	})
	t.Run("ARuleSeesAnErrorThatWrapsSeveral", func(t *testing.T) {
		t.Parallel()
		c := fault.Classifier{Rules: []fault.Rule{func(err error) (fault.Fault, bool) {
			var many manyError
			return fault.Fault{Class: fault.ClassBusy, Rule: "many"}, errors.As(err, &many)
		}}}
		require.Equal(t, "many", c.Classify(t.Context(), fmt.Errorf("a: %w", manyError{errPlain, pg("23505")})).Rule)
	})
	t.Run("WhatARuleLeavesOutIsFilledIn", func(t *testing.T) {
		t.Parallel()
		c := fault.Classifier{Rules: []fault.Rule{
			ruleFor(errQuota, fault.Fault{Class: fault.ClassUnavailable, RetryAfter: -time.Second}),
			ruleFor(errPlain, fault.Fault{Class: fault.ClassTransient, Dependency: "payments"}),
		}}
		require.Equal(t, fault.Fault{Class: fault.ClassUnavailable, Dependency: fault.Database}, c.Classify(t.Context(), errQuota))
		require.Equal(t, fault.Fault{Class: fault.ClassTransient}, c.Classify(t.Context(), errPlain))
	})
}

type brokenError struct{}

func (brokenError) Error() string { return "broken" }
func (brokenError) Unwrap() error { panic("broken") }

type manyError []error

func (e manyError) Error() string   { return "many" }
func (e manyError) Unwrap() []error { return e }

func TestUnreadableErrors(t *testing.T) {
	t.Parallel()
	var nilPg *pgconn.PgError
	var nilClassifier *fault.Classifier
	panics := fault.Classifier{Rules: []fault.Rule{func(error) (fault.Fault, bool) { panic("rule") }}}
	permanent := func(rule string) fault.Fault { return fault.Fault{Class: fault.ClassPermanent, Rule: rule} }

	require.Equal(t, permanent("unreadable"), nilClassifier.Classify(t.Context(), brokenError{}))
	require.Equal(t, permanent("unknown"), nilClassifier.Classify(t.Context(), nilPg))
	require.Equal(t, "verb busy", nilClassifier.Classify(t.Context(), errors.Join(fault.Busy(errPlain), nilPg)).Rule)
	require.Equal(t, permanent("unreadable"), panics.Classify(t.Context(), errPlain))
	require.Equal(t, permanent("nil error"), nilClassifier.Classify(t.Context(), nil))
	require.Equal(t, permanent("unknown"), nilClassifier.Classify(t.Context(), errPlain))
	require.Equal(t, permanent("unknown"), nilClassifier.Classify(t.Context(), manyError{nil, nil}))
	require.Equal(t, permanent("unknown"), nilClassifier.Classify(t.Context(), manyError{nil, errPlain}), "not comparable")
}

func TestClass(t *testing.T) {
	t.Parallel()
	require.Equal(t, "permanent", fault.Class(0).String())
	require.Equal(t, "cancelled", fault.ClassCancelled.String())
	require.Equal(t, "class(9)", fault.Class(9).String())
	require.True(t, fault.ClassAmbiguous.Charged())
	require.True(t, fault.Class(9).Charged(), "what nobody knows must not run for ever")
	for _, free := range []fault.Class{fault.ClassBusy, fault.ClassUnavailable, fault.ClassCancelled} {
		require.False(t, free.Charged(), free)
	}
}

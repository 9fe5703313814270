package downstream_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

var errLost = fault.Ambiguous(errors.New("the answer was lost"))

// sends counts what is sent, and answers with one error after the other and then with a charge.
type sends struct {
	errs []error
	keys []string
}

func (s *sends) do(_ context.Context, t downstream.Try) (string, error) {
	s.keys = append(s.keys, t.Key)
	if len(s.errs) == 0 {
		return "charged", nil
	}
	err := s.errs[0]
	s.errs = s.errs[1:]
	return "", err
}

func TestRun(t *testing.T) {
	t.Parallel()
	bubble := func(name string, f func(t *testing.T, d *downstream.Dependency)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { f(t, payments(t)) })
		})
	}

	bubble("WithoutARightToRepeatALostAnswerIsTheCallers", func(t *testing.T, d *downstream.Dependency) {
		s := sends{errs: []error{errLost}}
		_, err := downstream.Run(t.Context(), d, downstream.Operation[string]{Do: s.do})
		require.ErrorIs(t, err, errLost)
		require.Len(t, s.keys, 1)
	})
	bubble("WhatWasSurelyNotSentIsTriedAgain", func(t *testing.T, d *downstream.Dependency) {
		s := sends{errs: []error{errDown, errDown}}
		result, err := downstream.Run(t.Context(), d, downstream.Operation[string]{Do: s.do})
		require.NoError(t, err)
		require.Equal(t, "charged", result)
		require.Equal(t, []string{"", "", ""}, s.keys)
	})
	bubble("IdempotentIsTriedThreeTimes", func(t *testing.T, d *downstream.Dependency) {
		s := sends{errs: []error{errLost, errLost, errLost, errLost}}
		_, err := downstream.Run(t.Context(), d, downstream.Operation[string]{Do: s.do, Idempotent: true})
		require.ErrorIs(t, err, errLost)
		require.Len(t, s.keys, 3)
	})
	bubble("AllTriesHaveTheKey", func(t *testing.T, d *downstream.Dependency) {
		s := sends{errs: []error{errLost, errLost}}
		op := downstream.Operation[string]{Do: s.do, Keyed: true}
		for range 2 {
			_, err := downstream.Run(t.Context(), d, op)
			require.NoError(t, err)
		}
		require.Len(t, s.keys, 4)
		require.NotEmpty(t, s.keys[0])
		require.Equal(t, s.keys[0], s.keys[2])
		require.NotEqual(t, s.keys[0], s.keys[3], "another operation")
	})
	bubble("ATryHasADeadlineOfItsOwn", func(t *testing.T, d *downstream.Dependency) {
		began, tries := time.Now(), 0
		_, err := downstream.Run(t.Context(), d, downstream.Operation[string]{
			Idempotent: true,
			Do: func(ctx context.Context, _ downstream.Try) (string, error) {
				tries++
				<-ctx.Done()
				return "", context.Cause(ctx)
			},
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 3, tries)
		require.GreaterOrEqual(t, time.Since(began), 3*d.Config().Timeout)
	})
	bubble("ASeriesIsOneCallToTheBreaker", func(t *testing.T, d *downstream.Dependency) {
		for range 3 {
			s := sends{errs: []error{errDown, errDown, errDown}}
			_, err := downstream.Run(t.Context(), d, downstream.Operation[string]{Do: s.do})
			require.Error(t, err)
		}
		require.Equal(t, record.BreakerClosed, d.State())
		s := sends{errs: []error{errDown, errDown, errDown}}
		_, err := downstream.Run(t.Context(), d, downstream.Operation[string]{Do: s.do})
		require.Error(t, err)
		require.Equal(t, record.BreakerOpen, d.State())
		_, err = downstream.Run(t.Context(), d, downstream.Operation[string]{Do: s.do})
		require.ErrorIs(t, err, fault.ErrBreakerOpen)
	})
	bubble("ACallerThatLeavesEndsTheWait", func(t *testing.T, d *downstream.Dependency) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		s := sends{errs: []error{fault.RetryAfter(errors.New("later"), 7*time.Second)}}
		_, err := downstream.Run(ctx, d, downstream.Operation[string]{Do: s.do})
		require.Error(t, err)
		require.Equal(t, time.Second, time.Since(began))
		require.Zero(t, d.InUse())
	})
	bubble("APanicGivesEverythingBack", func(t *testing.T, d *downstream.Dependency) {
		require.Panics(t, func() {
			_, _ = downstream.Run(t.Context(), d, downstream.Operation[string]{
				Do: func(context.Context, downstream.Try) (string, error) { panic("no owner") },
			})
		})
		require.Zero(t, d.InUse())
	})
	bubble("NothingToDoIsABug", func(t *testing.T, d *downstream.Dependency) {
		_, err := downstream.Run(t.Context(), d, downstream.Operation[string]{})
		require.ErrorContains(t, err, "Operation.Do is nil")
	})
	bubble("InARouteThereIsOneTryWithTheRecordsKey", func(t *testing.T, d *downstream.Dependency) {
		s := sends{errs: []error{errLost}}
		ctx := downstream.WithPermit(t.Context(), downstream.Permit{Dependency: d, Group: "billing", Route: "charge", ID: uuid.Max})
		op := downstream.Operation[string]{Name: "charge", Do: s.do, Keyed: true}
		_, err := downstream.Run(ctx, d, op)
		require.ErrorIs(t, err, errLost)
		_, err = downstream.Run(ctx, d, op)
		require.NoError(t, err)
		key, _ := downstream.IdempotencyKey(ctx, "charge")
		require.Equal(t, []string{key, key}, s.keys)
	})
}

// asked is a status check that answers with one error after the other, and then with what it knows.
type asked struct {
	errs  []error
	found bool
	n     int
}

func (a *asked) reconcile(context.Context) (string, bool, error) {
	a.n++
	if len(a.errs) > 0 {
		err := a.errs[0]
		a.errs = a.errs[1:]
		return "", false, err
	}
	return "known", a.found, nil
}

func TestReconcile(t *testing.T) {
	t.Parallel()
	for _, r := range []struct {
		name         string
		sends        sends
		asked        asked
		result       string
		fails        error
		sent, checks int
	}{
		{"ASuccessIsNotAskedAbout", sends{}, asked{}, "charged", nil, 1, 0},
		{"WhatWasNotSentIsNotAskedAbout", sends{errs: []error{errDown}}, asked{}, "charged", nil, 2, 0},
		{"WhatWasCarriedOutIsNotSentAgain", sends{errs: []error{errLost}}, asked{found: true}, "known", nil, 1, 1},
		{"WhatWasNotIsSentAgain", sends{errs: []error{errLost}}, asked{}, "charged", nil, 2, 1},
		{"WhileNobodyKnowsNothingIsSent", sends{errs: []error{errLost}}, asked{errs: []error{errDown, errDown, errDown}}, "", errDown, 1, 2},
		{"AnAnswerAfterAFailedQuestion", sends{errs: []error{errLost}}, asked{errs: []error{errDown}, found: true}, "known", nil, 1, 2},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				result, err := downstream.Run(t.Context(), payments(t), downstream.Operation[string]{
					Do: r.sends.do, Reconcile: r.asked.reconcile,
				})
				if r.fails != nil {
					require.ErrorIs(t, err, r.fails)
					require.Equal(t, fault.ClassAmbiguous, new(fault.Classifier).ClassifyCall(t.Context(), err).Class, "it stays unknown")
				} else {
					require.NoError(t, err)
					require.Equal(t, r.result, result)
				}
				require.Len(t, r.sends.keys, r.sent)
				require.Equal(t, r.checks, r.asked.n)
			})
		})
	}

	t.Run("InARouteItIsAskedFirst", func(t *testing.T) {
		t.Parallel()
		d := payments(t)
		ctx := downstream.WithPermit(t.Context(), downstream.Permit{Dependency: d})
		s, a := sends{}, asked{found: true}
		op := downstream.Operation[string]{Do: s.do, Reconcile: a.reconcile}
		result, err := downstream.Run(ctx, d, op)
		require.NoError(t, err)
		require.Equal(t, "known", result)
		require.Empty(t, s.keys)
		a.found = false
		result, err = downstream.Run(ctx, d, op)
		require.NoError(t, err)
		require.Equal(t, "charged", result)
	})
}

// The answer of the first try was lost, and the second was refused: whoever heard "surely not carried out" ran it again,
// under another key, and charged twice.
func TestRun_ARefusalDoesNotHideThatATryBeforeMayHaveBeenCarriedOut(t *testing.T) {
	t.Parallel()
	errRefused := errors.New("refused")
	for name, tc := range map[string]struct {
		op   downstream.Operation[int]
		want fault.Class
	}{
		"Keyed":      {downstream.Operation[int]{Keyed: true}, fault.ClassAmbiguous},
		"Idempotent": {downstream.Operation[int]{Idempotent: true}, fault.ClassTransient},
		"KnownNotToBe": {downstream.Operation[int]{
			Reconcile: func(context.Context) (int, bool, error) { return 0, false, nil },
		}, fault.ClassTransient},
	} {
		d, err := downstream.New(downstream.Config{Name: "payments", Retry: downstream.RetryConfig{Base: time.Millisecond, Cap: time.Millisecond}})
		require.NoError(t, err)
		op := tc.op
		op.Do = func(_ context.Context, try downstream.Try) (int, error) {
			if try.Number == 1 {
				return 0, fault.Ambiguous(errors.New("lost"))
			}
			return 0, fault.RetryAfter(errRefused, time.Millisecond)
		}
		_, err = downstream.Run(t.Context(), d, op)
		require.ErrorIs(t, err, errRefused, name)
		f := new(fault.Classifier).ClassifyCall(t.Context(), err)
		require.Equal(t, tc.want, f.Class, name)
		require.Equal(t, time.Millisecond, f.RetryAfter, name)
	}
}

package downstream_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// A body that was read to its end was a success to the breaker, whatever had been in it: a proxy's page to log in with
// could answer for hours, and nothing was held.
func TestTheBreakerHearsOfAnAnswerThatCannotBeRead(t *testing.T) {
	t.Parallel()
	page := func(t *testing.T, change ...func(*downstream.Config)) (*downstream.Dependency, http.RoundTripper) {
		t.Helper()
		d := payments(t, change...)
		return d, d.Transport(says("text/html", loginPage))
	}
	t.Run("OutsideOfARoute", func(t *testing.T) {
		t.Parallel()
		var told []record.CallInfo
		d, rt := page(t, func(c *downstream.Config) {
			c.Hooks = &record.Hooks{OnCall: func(i record.CallInfo) { told = append(told, i) }}
			c.MaxConcurrent = 1
		})
		for range 4 {
			_, err := decoded[charge](rt, request(t.Context(), t, http.MethodPost))
			require.ErrorContains(t, err, "is no JSON")
			require.Zero(t, d.InUse())
		}
		require.Equal(t, record.BreakerOpen, d.State())
		require.Len(t, told, 4, "one request is one call")
		require.Equal(t, record.CallFailed, told[0].Outcome)
		require.Equal(t, "ambiguous", told[0].Class)
		_, err := decoded[charge](rt, request(t.Context(), t, http.MethodPost))
		require.ErrorIs(t, err, fault.ErrBreakerOpen)
	})
	t.Run("AnAnswerThatCanIsASuccess", func(t *testing.T) {
		t.Parallel()
		d := payments(t)
		_, err := decoded[charge](d.Transport(says("application/json", `{}`)), request(t.Context(), t, http.MethodPost))
		require.NoError(t, err)
		require.Equal(t, uint64(1), d.Answers())
		require.Zero(t, d.InUse())
	})
	t.Run("WhateverIsWrappedAroundTheBody", func(t *testing.T) {
		t.Parallel()
		d, rt := page(t)
		for range 4 {
			_, err := decoded[charge](timed{rt}, request(t.Context(), t, http.MethodPost))
			require.ErrorContains(t, err, "is no JSON")
		}
		require.Equal(t, record.BreakerOpen, d.State())
	})
	t.Run("InDo", func(t *testing.T) {
		t.Parallel()
		d, rt := page(t)
		for range 4 {
			require.Error(t, d.Do(t.Context(), func(ctx context.Context) error {
				_, err := decoded[charge](rt, request(ctx, t, http.MethodPost))
				return err
			}))
		}
		require.Equal(t, record.BreakerOpen, d.State())
	})
	t.Run("OfAnotherDependencyIsItsOwn", func(t *testing.T) {
		t.Parallel()
		pay, check := payments(t), fraud(t)
		_, err := decoded[charge](check.Transport(says("text/html", loginPage)), request(onBehalf(t.Context(), pay), t, http.MethodGet))
		foreign, ok := pay.Foreign(err)
		require.True(t, ok)
		require.Equal(t, "fraud", foreign.Dependency)
		require.Equal(t, downstream.Free, foreign.Charge, "fraud has answered nobody")
		require.Zero(t, check.Answers())
		require.Zero(t, check.InUse())

		half := newBase(func(_ int, req *http.Request) (*http.Response, error) {
			resp, err := answer(req, 200)
			resp.Body = io.NopCloser(failing{io.ErrUnexpectedEOF})
			return resp, err
		})
		_, err = decoded[charge](check.Transport(half), request(onBehalf(t.Context(), pay), t, http.MethodGet))
		foreign, ok = pay.Foreign(err)
		require.True(t, ok)
		require.NotErrorAs(t, foreign.Err, new(*downstream.ForeignError), "it is marked once")
	})
}

// panics is a type whose decoder does not come back.
type panics struct{}

func (*panics) UnmarshalJSON([]byte) error { panic("a bug") }

type exits struct{}

func (*exits) UnmarshalJSON([]byte) error { runtime.Goexit(); return nil }

func TestADecoderThatDoesNotReturnSaysNothingOfTheDependency(t *testing.T) {
	t.Parallel()
	var told []record.CallInfo
	d := payments(t, func(c *downstream.Config) {
		c.Hooks = &record.Hooks{OnCall: func(i record.CallInfo) { told = append(told, i) }}
	})
	rt := d.Transport(says("application/json", `{}`))
	require.Panics(t, func() { _, _ = decoded[panics](rt, request(t.Context(), t, http.MethodGet)) })
	gone := make(chan struct{})
	req := request(t.Context(), t, http.MethodGet)
	go func() {
		defer close(gone)
		_, _ = decoded[exits](rt, req)
	}()
	<-gone
	require.Zero(t, d.InUse())
	require.Zero(t, d.Answers())
	require.Len(t, told, 2)
	for _, i := range told {
		require.Equal(t, record.CallCancelled, i.Outcome)
	}
}

// What may be repeated is, in a Run: the answer of a Transport alone is its caller's by the time that it is decoded.
func TestAnAnswerThatCannotBeReadIsAskedForAgain(t *testing.T) {
	t.Parallel()
	for _, l := range []struct {
		name   string
		method string
		op     downstream.Operation[charge]
		sent   int
	}{
		{"Safe", http.MethodGet, downstream.Operation[charge]{}, 2},
		{"Keyed", http.MethodPost, downstream.Operation[charge]{Keyed: true}, 2},
		{"Neither", http.MethodPost, downstream.Operation[charge]{}, 1},
	} {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := payments(t)
				b := newBase(func(n int, req *http.Request) (*http.Response, error) {
					return says("", []string{loginPage, `{"id":"c-7"}`}[n-1]).RoundTrip(req)
				})
				l.op.Do = func(ctx context.Context, _ downstream.Try) (charge, error) {
					return decoded[charge](d.Transport(b), request(ctx, t, l.method))
				}
				got, err := downstream.Run(t.Context(), d, l.op)
				require.Len(t, b.at, l.sent)
				if l.sent == 1 {
					require.ErrorContains(t, err, "is no JSON")
					return
				}
				require.NoError(t, err)
				require.Equal(t, "c-7", got.ID)
			})
		})
	}
}

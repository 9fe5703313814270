package downstream_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
)

func fraud(t *testing.T) *downstream.Dependency {
	t.Helper()
	d, err := downstream.New(downstream.Config{Name: "fraud"})
	require.NoError(t, err)
	return d
}

// The outage of a fraud check that payments' calls made first was payments' to its breaker, and since payments answered
// others the records were charged for it, and dead.
func TestAnotherDependencysFailureIsItsOwn(t *testing.T) {
	t.Parallel()
	within := map[string]func(t *testing.T, d *downstream.Dependency) context.Context{
		"Route": func(t *testing.T, d *downstream.Dependency) context.Context {
			t.Helper()
			return downstream.WithPermit(t.Context(), downstream.Permit{Dependency: d, ID: uuid.Max})
		},
		"Do": func(t *testing.T, d *downstream.Dependency) context.Context {
			t.Helper()
			return counted(t.Context(), d)
		},
	}
	broken := func(req *http.Request) (*http.Response, error) {
		resp, err := answer(req, 200)
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("half"), failing{io.ErrUnexpectedEOF}))
		return resp, err
	}
	ways := map[string]func(ctx context.Context, d *downstream.Dependency) error{
		"AnAnswer":  viaHTTP(func(req *http.Request) (*http.Response, error) { return answer(req, 503) }),
		"NoAnswer":  viaHTTP(func(*http.Request) (*http.Response, error) { return nil, errRefused }),
		"HalfABody": viaHTTP(broken),
		"Do": func(ctx context.Context, d *downstream.Dependency) error {
			return d.Do(ctx, func(context.Context) error { return fault.Transient(errors.New("away")) })
		},
	}
	for around, ctxOf := range within {
		for name, fails := range ways {
			t.Run(around+"/"+name, func(t *testing.T) {
				t.Parallel()
				pay, check := payments(t), fraud(t)
				ctx := ctxOf(t, pay)
				err := fails(ctx, check)
				foreign, ok := pay.Foreign(err)
				require.True(t, ok, "%T", err)
				require.Equal(t, "fraud", foreign.Dependency)
				require.Equal(t, downstream.Free, foreign.Charge, "fraud has answered nobody")
				_, ok = check.Foreign(err)
				require.False(t, ok)
				require.NotEqual(t, fault.ClassPermanent, new(fault.Classifier).ClassifyCall(ctx, err).Class, "as before")

				other, begun := check.Begin(openFor)
				require.NoError(t, begun)
				other.End(false, fault.Fault{})
				answered := viaHTTP(func(req *http.Request) (*http.Response, error) {
					c, begun := check.Begin(openFor)
					require.NoError(t, begun)
					c.End(false, fault.Fault{})
					return answer(req, 503)
				})(ctx, check)
				foreign, ok = pay.Foreign(answered)
				require.True(t, ok)
				require.Equal(t, downstream.Charged, foreign.Charge, "fraud has answered somebody meanwhile")
			})
		}
	}
	t.Run("OpensItsBreakerAlone", func(t *testing.T) {
		t.Parallel()
		pay, check := payments(t), fraud(t)
		for range 24 {
			err := pay.Do(t.Context(), func(ctx context.Context) error { return ways["AnAnswer"](ctx, check) })
			require.Error(t, err)
		}
		require.Equal(t, "open", check.State())
		require.Equal(t, "closed", pay.State())
	})
	t.Run("ItsOwnIsNoForeign", func(t *testing.T) {
		t.Parallel()
		pay := payments(t)
		for _, ctx := range []context.Context{t.Context(), within["Do"](t, pay), within["Route"](t, pay)} {
			var foreign *downstream.ForeignError
			require.NotErrorAs(t, ways["AnAnswer"](ctx, pay), &foreign)
		}
	})
}

// viaHTTP is what a handler does.
func viaHTTP(answer func(*http.Request) (*http.Response, error)) func(context.Context, *downstream.Dependency) error {
	return func(ctx context.Context, d *downstream.Dependency) error {
		b := newBase(func(_ int, req *http.Request) (*http.Response, error) { return answer(req) })
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://host.test/check", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := (&http.Client{Transport: d.Transport(b)}).Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if err := downstream.Check(resp); err != nil {
			return err
		}
		_, err = io.ReadAll(resp.Body)
		return err
	}
}

// A probe that sent its request without its context was refused by its own breaker, said nothing by that, and was made
// again at once: 99,785 times in 45s.
func TestAProbeThatIsRefusedInsideHasFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := payments(t)
		for range 4 {
			c, err := d.Begin(openFor)
			require.NoError(t, err)
			c.End(true, fault.Fault{Class: fault.ClassTransient})
		}
		elapse(openFor + time.Second)
		probes := 0
		for range 100 {
			c, err := d.Begin(openFor)
			if err != nil {
				continue
			}
			probes++
			require.True(t, c.Probe())
			err = d.Do(t.Context(), func(context.Context) error { return nil })
			f := new(fault.Classifier).ClassifyCall(t.Context(), err)
			require.True(t, d.RefusedInside(f))
			require.Equal(t, downstream.Outage, c.End(true, f))
		}
		require.Equal(t, 1, probes)
		require.Equal(t, "open", d.State())
	})
}

// A probe of a client that found no place was not begun inside of another: it says nothing.
func TestAProbeWithoutAPlaceSaysNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := payments(t, func(c *downstream.Config) { c.MaxConcurrent = 1 })
		for range 4 {
			c, err := d.Begin(openFor)
			require.NoError(t, err)
			c.End(true, fault.Fault{Class: fault.ClassTransient})
		}
		elapse(openFor + time.Second)
		release, ok := d.Acquire(t.Context(), nil)
		require.True(t, ok)
		require.ErrorIs(t, d.Do(t.Context(), func(context.Context) error { return nil }), fault.ErrBulkheadFull)
		release()
		require.NoError(t, d.Do(t.Context(), func(context.Context) error { return nil }), "it is half open still")
	})
}

// A 401 that asked for a year had it.
func TestNobodyIsAskedForAYear(t *testing.T) {
	t.Parallel()
	for name, asks := range map[string]time.Duration{"AYear": 365 * 24 * time.Hour, "ForEver": math.MaxInt64, "Negative": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := payments(t)
				c, err := d.Begin(openFor)
				require.NoError(t, err)
				c.End(true, fault.Fault{Class: fault.ClassUnavailable, Dependency: "payments", RetryAfter: asks, Rule: "http 401"})
				require.True(t, d.Gate().Shut())
				elapse(15*time.Minute + time.Second)
				require.False(t, d.Gate().Shut(), "somebody may ask again")
			})
		})
	}
}

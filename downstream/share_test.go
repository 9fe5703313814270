package downstream_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// slowBody is an answer whose body comes after a time, or breaks off with the request's context.
type slowBody struct {
	ctx   context.Context
	after time.Duration
}

func (b slowBody) Read([]byte) (int, error) {
	select {
	case <-time.After(b.after):
		return 0, io.EOF
	case <-b.ctx.Done():
		return 0, context.Cause(b.ctx)
	}
}

func (slowBody) Close() error { return nil }

func TestWithShares(t *testing.T) {
	t.Parallel()
	const s = time.Second

	// How each way to call lasts until its context ends.
	ways := map[string]func(ctx context.Context, t *testing.T, d *downstream.Dependency) error{
		"Do": func(ctx context.Context, _ *testing.T, d *downstream.Dependency) error {
			return d.Do(ctx, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
		},
		"ADoInADo": func(ctx context.Context, _ *testing.T, d *downstream.Dependency) error {
			return d.Do(ctx, func(ctx context.Context) error {
				return d.Do(ctx, func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
			})
		},
		"Run": func(ctx context.Context, _ *testing.T, d *downstream.Dependency) error {
			_, err := downstream.Run(ctx, d, downstream.Operation[int]{
				Do: func(ctx context.Context, _ downstream.Try) (int, error) { <-ctx.Done(); return 0, context.Cause(ctx) },
			})
			return err
		},
		"Transport": func(ctx context.Context, t *testing.T, d *downstream.Dependency) error {
			_, err := statusOf(t, d, newBase(func(_ int, req *http.Request) (*http.Response, error) {
				<-req.Context().Done()
				return nil, context.Cause(req.Context())
			}), request(ctx, t, http.MethodPost))
			return err
		},
		"TheBodyOfAnAnswer": func(ctx context.Context, t *testing.T, d *downstream.Dependency) error {
			resp, err := d.Transport(newBase(func(_ int, req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Body: slowBody{req.Context(), time.Hour}}, nil
			})).RoundTrip(request(ctx, t, http.MethodPost))
			require.NoError(t, err)
			defer resp.Body.Close() //nolint:errcheck // it has broken off
			_, err = io.Copy(io.Discard, resp.Body)
			return err
		},
	}
	for name, call := range ways {
		// In a route's call to d, and in one to another dependency.
		for where, own := range map[string]bool{"": true, "Elsewhere": false} {
			t.Run(name+where, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					fraud := payments(t, func(c *downstream.Config) { c.Name = "fraud" })
					d, refused := payments(t), 0
					defer d.Observe(&record.Hooks{OnCall: func(i record.CallInfo) {
						if i.Outcome == record.CallRefused {
							refused++
						}
					}})()
					of := fraud
					if own {
						of = d
					}
					ctx, cancel := context.WithTimeout(downstream.WithPermit(t.Context(), downstream.Permit{Dependency: of}), 10*s)
					defer cancel()
					ctx = downstream.WithShares(ctx, map[*downstream.Dependency]time.Duration{d: 6 * s}, s)

					began := time.Now()
					err := call(ctx, t, d)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Equal(t, fault.ClassAmbiguous, new(fault.Classifier).ClassifyCall(ctx, err).Class, "it may have been carried out")
					require.Equal(t, 6*s, time.Since(began), "what it was given")

					err = call(ctx, t, d)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Equal(t, 9*s, time.Since(began), "what is left but for the reserve")
					require.Zero(t, refused)

					elapse(s / 2)
					err = callRefused(ctx, t, d)
					require.ErrorIs(t, err, fault.ErrNoTime)
					require.ErrorContains(t, err, "500ms left, 1s of it in reserve")
					if own {
						require.Zero(t, refused, "the route's own call is told when it ends")
					} else {
						require.Equal(t, 1, refused)
					}
				})
			})
		}
	}

	bubble := func(name string, f func(t *testing.T, d *downstream.Dependency)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { f(t, payments(t)) })
		})
	}
	bubble("WithoutATimeAroundItIsWhatWasGiven", func(t *testing.T, d *downstream.Dependency) {
		ctx := downstream.WithShares(t.Context(), map[*downstream.Dependency]time.Duration{d: 3 * s}, s)
		began := time.Now()
		require.ErrorIs(t, ways["Do"](ctx, t, d), context.DeadlineExceeded)
		require.Equal(t, 3*s, time.Since(began))
	})
	bubble("OthersHaveAllThatThereIs", func(t *testing.T, d *downstream.Dependency) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*s)
		defer cancel()
		ctx = downstream.WithShares(ctx, nil, 2*s)
		began := time.Now()
		require.ErrorIs(t, ways["Do"](ctx, t, d), context.DeadlineExceeded)
		require.Equal(t, 10*s, time.Since(began))
	})
}

// callRefused makes a request that nothing is left for, and that must not be sent.
func callRefused(ctx context.Context, t *testing.T, d *downstream.Dependency) error {
	t.Helper()
	b := statuses(http.StatusOK)
	_, err := statusOf(t, d, b, request(ctx, t, http.MethodPost))
	require.Empty(t, b.at)
	unrun := func(context.Context) error { t.Error("it was run"); return nil }
	require.ErrorIs(t, err, fault.ErrNoTime)
	if p, _ := downstream.PermitFrom(ctx); p.Dependency == d {
		require.ErrorIs(t, d.Do(ctx, unrun), fault.ErrNoTime)
		_, err := downstream.Run(ctx, d, downstream.Operation[int]{
			Do: func(ctx context.Context, _ downstream.Try) (int, error) { return 0, unrun(ctx) },
		})
		require.ErrorIs(t, err, fault.ErrNoTime)
	}
	return err
}

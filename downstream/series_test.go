package downstream_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// base is a RoundTripper that answers without a network, so that a test can own the time.
type base struct {
	answer func(n int, req *http.Request) (*http.Response, error)

	mu     sync.Mutex
	since  time.Time
	at     []time.Duration
	bodies []string
}

func (b *base) RoundTrip(req *http.Request) (*http.Response, error) {
	body := ""
	if req.Body != nil {
		all, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		body = string(all)
		if err := req.Body.Close(); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	b.at, b.bodies = append(b.at, time.Since(b.since)), append(b.bodies, body)
	n := len(b.at)
	b.mu.Unlock()
	return b.answer(n, req)
}

func newBase(answer func(n int, req *http.Request) (*http.Response, error)) *base {
	return &base{answer: answer, since: time.Now()}
}

func answer(req *http.Request, status int, headers ...string) (*http.Response, error) {
	resp := &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Request: req,
		Body: io.NopCloser(strings.NewReader("a body")),
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		resp.Header.Set(name, value)
	}
	return resp, nil
}

// statuses answers with one after the other, and with the last for ever.
func statuses(codes ...int) *base {
	return newBase(func(n int, req *http.Request) (*http.Response, error) {
		return answer(req, codes[min(n, len(codes))-1])
	})
}

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

func request(ctx context.Context, t testing.TB, method string, change ...func(*http.Request)) *http.Request {
	t.Helper()
	var body io.Reader
	if method == http.MethodPost || method == http.MethodPut {
		body = strings.NewReader("an order")
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://payments.test/charge?token=secret", body)
	require.NoError(t, err)
	for _, f := range change {
		f(req)
	}
	return req
}

func withKey(req *http.Request) { req.Header.Set("Idempotency-Key", "k-7") }

// status makes the request and gives its end.
func statusOf(t testing.TB, d *downstream.Dependency, b http.RoundTripper, req *http.Request) (int, error) {
	t.Helper()
	resp, err := d.Transport(b).RoundTrip(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, nil
}

func TestTriesOutsideOfARoute(t *testing.T) {
	t.Parallel()
	bubble := func(name string, f func(t *testing.T, d *downstream.Dependency)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { f(t, payments(t)) })
		})
	}

	bubble("ASafeRequestIsTriedThreeTimes", func(t *testing.T, d *downstream.Dependency) {
		b := statuses(502, 500, 200)
		code, err := statusOf(t, d, b, request(t.Context(), t, http.MethodGet))
		require.NoError(t, err)
		require.Equal(t, 200, code)
		require.Len(t, b.at, 3)
	})
	bubble("TheLastAnswerIsTheCallers", func(t *testing.T, d *downstream.Dependency) {
		b := statuses(502)
		code, err := statusOf(t, d, b, request(t.Context(), t, http.MethodGet))
		require.NoError(t, err)
		require.Equal(t, 502, code)
		require.Len(t, b.at, 3)
		require.Less(t, b.at[2], 200*time.Millisecond+400*time.Millisecond)
	})
	bubble("AnAmbiguousPostIsNotTriedAgain", func(t *testing.T, d *downstream.Dependency) {
		b := statuses(502)
		_, err := statusOf(t, d, b, request(t.Context(), t, http.MethodPost))
		require.NoError(t, err)
		require.Len(t, b.at, 1)
	})
	bubble("OneWithAKeyIs", func(t *testing.T, d *downstream.Dependency) {
		b := statuses(502, 409, 200)
		code, err := statusOf(t, d, b, request(t.Context(), t, http.MethodPost, withKey))
		require.NoError(t, err)
		require.Equal(t, 200, code)
		require.Equal(t, []string{"an order", "an order", "an order"}, b.bodies)
	})
	bubble("AnAnswerAboutItsKeyIsFinal", func(t *testing.T, d *downstream.Dependency) {
		b := statuses(422)
		_, err := statusOf(t, d, b, request(t.Context(), t, http.MethodPost, withKey))
		require.NoError(t, err)
		require.Len(t, b.at, 1)
	})
	bubble("APostThatWasNotSentIs", func(t *testing.T, d *downstream.Dependency) {
		b := newBase(func(n int, req *http.Request) (*http.Response, error) {
			if n == 1 {
				return nil, errRefused
			}
			return answer(req, 200)
		})
		_, err := statusOf(t, d, b, request(t.Context(), t, http.MethodPost))
		require.NoError(t, err)
		require.Len(t, b.at, 2)
	})
	bubble("RetryAfterIsAFloor", func(t *testing.T, d *downstream.Dependency) {
		b := newBase(func(n int, req *http.Request) (*http.Response, error) {
			if n == 1 {
				return answer(req, 429, "Retry-After: 7")
			}
			return answer(req, 200)
		})
		_, err := statusOf(t, d, b, request(t.Context(), t, http.MethodPost))
		require.NoError(t, err)
		require.Len(t, b.at, 2)
		require.GreaterOrEqual(t, b.at[1], 7*time.Second)
		require.Less(t, b.at[1], 7*time.Second+d.Config().Retry.Base, "with the back-off on top")
	})
	bubble("ARetryAfterThatDoesNotFitIsNotWaitedFor", func(t *testing.T, d *downstream.Dependency) {
		b := newBase(func(_ int, req *http.Request) (*http.Response, error) { return answer(req, 429, "Retry-After: 7") })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		code, err := statusOf(t, d, b, request(ctx, t, http.MethodPost))
		require.NoError(t, err)
		require.Equal(t, 429, code)
		require.Equal(t, []time.Duration{0}, b.at)
		require.Zero(t, time.Since(b.since), "it does not wait for what it will not do")

		year := newBase(func(_ int, req *http.Request) (*http.Response, error) {
			return answer(req, 429, "Retry-After: 31536000")
		})
		_, err = statusOf(t, d, year, request(t.Context(), t, http.MethodPost))
		require.NoError(t, err)
		require.Len(t, year.at, 1)
	})
	bubble("ACallerThatLeavesEndsTheWait", func(t *testing.T, d *downstream.Dependency) {
		b := newBase(func(_ int, req *http.Request) (*http.Response, error) { return answer(req, 429, "Retry-After: 7") })
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		_, err := statusOf(t, d, b, request(ctx, t, http.MethodPost))
		require.NoError(t, err, "it gets the answer that there is")
		require.Equal(t, time.Second, time.Since(began))
	})
	bubble("ATryHasADeadlineOfItsOwn", func(t *testing.T, d *downstream.Dependency) {
		b := newBase(func(n int, req *http.Request) (*http.Response, error) {
			if n == 1 {
				<-req.Context().Done()
				return nil, context.Cause(req.Context())
			}
			return answer(req, 200)
		})
		_, err := statusOf(t, d, b, request(t.Context(), t, http.MethodPost, withKey))
		require.NoError(t, err)
		require.GreaterOrEqual(t, b.at[1], d.Config().Timeout)
	})
	bubble("AProbeIsOneRequest", func(t *testing.T, d *downstream.Dependency) {
		open(t, d)
		elapse(openFor + time.Second)
		b := statuses(502)
		_, err := statusOf(t, d, b, request(t.Context(), t, http.MethodGet))
		require.NoError(t, err)
		require.Len(t, b.at, 1)
		_, err = statusOf(t, d, b, request(t.Context(), t, http.MethodGet))
		require.ErrorIs(t, err, fault.ErrBreakerOpen)
		require.Len(t, b.at, 1)
	})
	bubble("ABreakerThatOpensEndsTheTries", func(t *testing.T, d *downstream.Dependency) {
		b := statuses(502)
		b.answer = func(_ int, req *http.Request) (*http.Response, error) {
			open(t, d)
			return answer(req, 502)
		}
		_, err := statusOf(t, d, b, request(t.Context(), t, http.MethodGet))
		require.NoError(t, err)
		require.Len(t, b.at, 1)
		require.Zero(t, time.Since(b.since), "and waits for none")
	})
	bubble("InARouteThereIsOneTry", func(t *testing.T, d *downstream.Dependency) {
		for _, p := range []*downstream.Dependency{d, payments(t)} {
			b := statuses(502)
			ctx := downstream.WithPermit(t.Context(), downstream.Permit{Dependency: p})
			_, err := statusOf(t, d, b, request(ctx, t, http.MethodGet))
			require.NoError(t, err)
			require.Len(t, b.at, 1)
		}
	})
	bubble("ASeriesIsOneCallToTheBreaker", func(t *testing.T, d *downstream.Dependency) {
		b := statuses(502)
		for range 3 {
			_, err := statusOf(t, d, b, request(t.Context(), t, http.MethodGet))
			require.NoError(t, err)
		}
		require.Len(t, b.at, 9)
		require.Equal(t, record.BreakerClosed, d.State())
		_, err := statusOf(t, d, b, request(t.Context(), t, http.MethodGet))
		require.NoError(t, err)
		require.Equal(t, record.BreakerOpen, d.State())
	})
	bubble("RetriesAddLittleToADependencyThatFails", func(t *testing.T, _ *downstream.Dependency) {
		d := payments(t, func(c *downstream.Config) { c.Breaker.MinRequests = 1e6 })
		b := statuses(502)
		for range 1000 {
			_, err := statusOf(t, d, b, request(t.Context(), t, http.MethodGet))
			require.NoError(t, err)
		}
		require.InDelta(t, 1110, len(b.at), 5)
	})
}

func TestBodiesAreReplayed(t *testing.T) {
	t.Parallel()
	for _, r := range []struct {
		name  string
		body  func() io.Reader
		size  int
		tries int
	}{
		{"ByGetBody", func() io.Reader { return strings.NewReader("an order") }, 8, 2},
		{"FromACopy", func() io.Reader { return io.LimitReader(zeros{}, 1<<20) }, 1 << 20, 2},
		{"TooLongForACopy", func() io.Reader { return io.LimitReader(zeros{}, 1<<20+1) }, 1<<20 + 1, 1},
		{"None", func() io.Reader { return nil }, 0, 2},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := statuses(503, 200)
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://payments.test/", r.body())
				require.NoError(t, err)
				_, err = statusOf(t, payments(t), b, req)
				require.NoError(t, err)
				require.Len(t, b.bodies, r.tries)
				for _, body := range b.bodies {
					require.Len(t, body, r.size)
				}
			})
		})
	}

	t.Run("OneThatCannotBeReadIsTheCallersFault", func(t *testing.T) {
		t.Parallel()
		d := payments(t)
		errDisk := errors.New("disk on fire")
		for range 10 {
			req := request(t.Context(), t, http.MethodPost)
			req.Body, req.GetBody = io.NopCloser(failing{errDisk}), nil
			_, err := statusOf(t, d, statuses(200), req)
			require.ErrorIs(t, err, errDisk)
		}
		require.Equal(t, record.BreakerClosed, d.State())
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestPlacesOutsideOfARoute(t *testing.T) {
	t.Parallel()
	one := func(c *downstream.Config) { c.MaxConcurrent = 1 }
	free := func(t *testing.T, d *downstream.Dependency) error {
		t.Helper()
		return d.Do(t.Context(), func(context.Context) error { return nil })
	}

	t.Run("AnAnswerKeepsItsPlaceUntilItsBodyEnds", func(t *testing.T) {
		t.Parallel()
		d := payments(t, one)
		for _, end := range []func(io.ReadCloser) error{
			func(body io.ReadCloser) error { return body.Close() },
			func(body io.ReadCloser) error { _, err := io.ReadAll(body); return err },
		} {
			resp, err := d.Transport(statuses(200)).RoundTrip(request(t.Context(), t, http.MethodGet))
			require.NoError(t, err)
			require.ErrorIs(t, free(t, d), fault.ErrBulkheadFull)
			require.NoError(t, resp.Request.Context().Err())
			require.NoError(t, end(resp.Body))
			require.NoError(t, free(t, d))
			require.Error(t, resp.Request.Context().Err(), "the attempt's context ends with the body")
			require.NoError(t, resp.Body.Close())
		}
	})
	t.Run("AFailureGivesItBackAtOnce", func(t *testing.T) {
		t.Parallel()
		d := payments(t, one)
		resp, err := d.Transport(statuses(404)).RoundTrip(request(t.Context(), t, http.MethodGet))
		require.NoError(t, err)
		require.NoError(t, free(t, d))
		require.NoError(t, resp.Body.Close())
	})
	t.Run("SoDoAPanicAndGoexit", func(t *testing.T) {
		t.Parallel()
		d := payments(t, one)
		panics := newBase(func(int, *http.Request) (*http.Response, error) { panic("no owner") })
		require.Panics(t, func() { _, _ = statusOf(t, d, panics, request(t.Context(), t, http.MethodGet)) })
		require.NoError(t, free(t, d))
		exits := newBase(func(int, *http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil }) //nolint:nilnil // not reached
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = statusOf(t, d, exits, request(t.Context(), t, http.MethodGet)) })
		wg.Wait()
		require.NoError(t, free(t, d))
	})
	t.Run("ABodyThatBreaksOffIsTheDependencysFailure", func(t *testing.T) {
		t.Parallel()
		d := payments(t)
		cut := newBase(func(_ int, req *http.Request) (*http.Response, error) {
			resp, err := answer(req, 200)
			resp.Body = io.NopCloser(failing{io.ErrUnexpectedEOF})
			return resp, err
		})
		for range 4 {
			resp, err := d.Transport(cut).RoundTrip(request(t.Context(), t, http.MethodPost))
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			require.Equal(t, fault.ClassAmbiguous, new(fault.Classifier).ClassifyCall(t.Context(), err).Class)
			require.NoError(t, resp.Body.Close())
		}
		require.Equal(t, record.BreakerOpen, d.State())
	})
}

func TestCallHooks(t *testing.T) {
	t.Parallel()
	for _, r := range []struct {
		name    string
		answer  func(req *http.Request) (*http.Response, error)
		outcome string
		class   string
	}{
		{"Success", func(req *http.Request) (*http.Response, error) { return answer(req, 200) }, record.CallSucceeded, ""},
		{"NotFound", func(req *http.Request) (*http.Response, error) { return answer(req, 404) }, record.CallAnswered, "permanent"},
		{"Down", func(req *http.Request) (*http.Response, error) { return answer(req, 500) }, record.CallFailed, "ambiguous"},
		{"Credentials", func(req *http.Request) (*http.Response, error) { return answer(req, 401) }, record.CallFailed, "unavailable"},
		{"Refused", func(*http.Request) (*http.Response, error) { return nil, errRefused }, record.CallFailed, "transient"},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			var told []record.CallInfo
			d := payments(t, func(c *downstream.Config) { c.Retry.Attempts = 1 })
			remove := d.Observe(&record.Hooks{OnCall: func(i record.CallInfo) { told = append(told, i) }})
			b := newBase(func(_ int, req *http.Request) (*http.Response, error) { return r.answer(req) })
			_, _ = statusOf(t, d, b, request(t.Context(), t, http.MethodPost))
			remove()
			_, _ = statusOf(t, d, b, request(t.Context(), t, http.MethodPost))
			require.Len(t, told, 1)
			require.Equal(t, "payments", told[0].Dependency)
			require.Equal(t, r.outcome, told[0].Outcome)
			require.Equal(t, r.class, told[0].Class)
			require.Positive(t, told[0].Took)
		})
	}

	t.Run("RefusedAndCancelledAndForARoute", func(t *testing.T) {
		t.Parallel()
		var told []record.CallInfo
		d := payments(t, func(c *downstream.Config) {
			c.Hooks = &record.Hooks{OnCall: func(i record.CallInfo) { told = append(told, i) }}
		})
		ctx, cancel := context.WithCancel(t.Context())
		_ = d.Do(ctx, func(context.Context) error { cancel(); return ctx.Err() })
		open(t, d)
		_, err := d.BeginFor("charge", limit)
		require.Error(t, err)
		require.Equal(t, record.CallCancelled, told[0].Outcome)
		require.Equal(t, record.CallInfo{
			Dependency: "payments", Route: "charge", Outcome: record.CallRefused, Class: "unavailable",
		}, told[len(told)-1])
	})
}

// A thousand calls at once, and hooks that come and go: for the race detector.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	d := payments(t, func(c *downstream.Config) { c.Breaker.OpenFor = time.Millisecond })
	var calls atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 200 {
				remove := d.Observe(&record.Hooks{OnCall: func(record.CallInfo) { calls.Add(1) }})
				_ = d.Do(t.Context(), func(context.Context) error {
					if (n+i)%3 > 0 {
						return errDown
					}
					return nil
				})
				if pass, ok := d.Gate().TryEnter(); ok {
					pass.Release()
				}
				d.State()
				remove()
			}
		})
	}
	wg.Wait()
	require.GreaterOrEqual(t, calls.Load(), int64(1600))
	require.Eventually(t, func() bool {
		return d.Do(t.Context(), func(context.Context) error { return nil }) == nil
	}, 5*time.Second, time.Millisecond)
	require.Equal(t, record.BreakerClosed, d.State())
}

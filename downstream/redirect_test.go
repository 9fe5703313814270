package downstream_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
)

// moved are two hosts, of which the first redirects everything but /here to the second, or to another path of its own.
type moved struct {
	first, second *httptest.Server

	mu   sync.Mutex
	seen []string // method, path and key of each request
}

func newMoved(t *testing.T, status int, to func(m *moved) string) *moved {
	t.Helper()
	m := &moved{}
	note := func(req *http.Request) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.seen = append(m.seen, req.Method+" "+req.URL.Path+" "+req.Header.Get(fault.IdempotencyKey))
	}
	m.second = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { note(req) }))
	t.Cleanup(m.second.Close)
	m.first = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		note(req)
		if req.URL.Path != "/here" {
			http.Redirect(w, req, to(m), status)
		}
	}))
	t.Cleanup(m.first.Close)
	return m
}

func onBehalf(ctx context.Context, d *downstream.Dependency) context.Context {
	return downstream.WithPermit(ctx, downstream.Permit{Dependency: d, Group: "billing", Route: "charge", ID: uuid.Max})
}

// post is what a handler does, with its error as the route judges it.
func post(ctx context.Context, t *testing.T, client *http.Client, url string, body io.Reader) (fault.Fault, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	require.NoError(t, err)
	resp, err := client.Do(req)
	if err == nil {
		defer func() { require.NoError(t, resp.Body.Close()) }()
		err = downstream.Check(resp)
	}
	if err == nil {
		return fault.Fault{}, nil
	}
	return new(fault.Classifier).ClassifyCall(ctx, err), err
}

// One call had two keys: the charge whose answer was lost was made again under the key of the path that it had moved to.
func TestARedirectKeepsTheKey(t *testing.T) {
	t.Parallel()
	d := payments(t)
	ctx := onBehalf(t.Context(), d)
	key, _ := downstream.IdempotencyKey(ctx, "POST /charges")
	for name, to := range map[string]func(m *moved) string{
		"SameHost":    func(m *moved) string { return m.first.URL + "/here" },
		"AnotherHost": func(m *moved) string { return m.second.URL + "/here" },
	} {
		for _, status := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
			t.Run(name+http.StatusText(status), func(t *testing.T) {
				t.Parallel()
				m := newMoved(t, status, to)
				_, err := post(ctx, t, &http.Client{Transport: d.Transport(nil)}, m.first.URL+"/charges", strings.NewReader("an order"))
				require.NoError(t, err)
				require.Equal(t, []string{"POST /charges " + key, "POST /here " + key}, m.seen)
			})
		}
	}
	t.Run("OfTheCaller", func(t *testing.T) {
		t.Parallel()
		m := newMoved(t, http.StatusTemporaryRedirect, func(m *moved) string { return m.second.URL + "/here" })
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.first.URL+"/charges", strings.NewReader("an order"))
		require.NoError(t, err)
		withKey(req)
		resp, err := (&http.Client{Transport: d.Transport(nil)}).Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, []string{"POST /charges k-7", "POST /here k-7"}, m.seen)
	})
}

// A proxy's login page made every record effected, and none was charged.
func TestAPostThatBecomesAGetIsNoSuccess(t *testing.T) {
	t.Parallel()
	here := func(m *moved) string { return m.first.URL + "/here" }
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			d, m := payments(t), newMoved(t, status, here)
			ctx, client := onBehalf(t.Context(), d), &http.Client{Transport: d.Transport(nil)}
			f, err := post(ctx, t, client, m.first.URL+"/charges", strings.NewReader("an order"))
			require.ErrorContains(t, err, "POST: status")
			require.ErrorContains(t, err, "http.ErrUseLastResponse")
			require.Equal(t, fault.Fault{Class: fault.ClassAmbiguous, Rule: "redirected"}, f)
			require.Equal(t, fault.SaysDown, f.Evidence("payments"), "not the record's fault, as far as anybody can tell")
			require.Len(t, m.seen, 1, "the GET is not sent")

			client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			_, err = post(ctx, t, client, m.first.URL+"/charges", strings.NewReader("an order"))
			require.NoError(t, err, "as the error says, for whom that is a success")
		})
	}
	t.Run("OnBehalfOfARecordAlone", func(t *testing.T) {
		t.Parallel()
		d, m := payments(t), newMoved(t, http.StatusSeeOther, here)
		_, err := post(t.Context(), t, &http.Client{Transport: d.Transport(nil)}, m.first.URL+"/charges", strings.NewReader("an order"))
		require.NoError(t, err)
		require.Len(t, m.seen, 2)
	})
	t.Run("AGetMayBeRedirected", func(t *testing.T) {
		t.Parallel()
		d, m := payments(t), newMoved(t, http.StatusFound, here)
		req, err := http.NewRequestWithContext(onBehalf(t.Context(), d), http.MethodGet, m.first.URL+"/state", http.NoBody)
		require.NoError(t, err)
		resp, err := (&http.Client{Transport: d.Transport(nil)}).Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.NoError(t, downstream.Check(resp))
	})
}

// http.Client hands a 307 on whose body it does not have a second time: nothing was carried out.
func TestARedirectThatIsNotFollowedIsNoSuccess(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		d, m := payments(t), newMoved(t, status, func(m *moved) string { return m.second.URL + "/here" })
		f, err := post(onBehalf(t.Context(), d), t, &http.Client{Transport: d.Transport(nil)}, m.first.URL+"/charges", io.MultiReader(strings.NewReader("an order")))
		require.Error(t, err)
		require.Equal(t, fault.ClassUnavailable, f.Class)
		require.Equal(t, fault.SaysDown, f.Evidence("payments"))
		require.Len(t, m.seen, 1)
	}
}

func TestARedirectLoopIsTheDependencys(t *testing.T) {
	t.Parallel()
	d, m := payments(t), newMoved(t, http.StatusTemporaryRedirect, func(m *moved) string { return m.first.URL + "/charges" })
	f, err := post(onBehalf(t.Context(), d), t, &http.Client{Transport: d.Transport(nil)}, m.first.URL+"/charges", strings.NewReader("an order"))
	require.ErrorContains(t, err, "10 redirects")
	require.Equal(t, fault.ClassAmbiguous, f.Class)
	require.Equal(t, fault.SaysDown, f.Evidence("payments"))
	for _, seen := range m.seen {
		require.Equal(t, m.seen[0], seen, "one call is one key")
	}
}

package health_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/health"
)

func TestProbes(t *testing.T) {
	t.Parallel()
	why := errors.Join(errors.New("the database is away: password=hunter2"), errors.New("so are the brokers"))
	served := health.Probes{
		Live: func() error { return nil }, Ready: func() error { return why },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("up 1\n")) }),
	}
	ask := func(method, path string) (int, string) {
		w := httptest.NewRecorder()
		served.Handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Code, w.Body.String()
	}
	code, text := ask(http.MethodGet, "/livez")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok\n", text)
	code, text = ask(http.MethodGet, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, text, "the database is away: ")
	require.Contains(t, text, "\nso are the brokers\n")
	require.NotContains(t, text, "hunter2")
	code, text = ask(http.MethodGet, "/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "up 1\n", text)
	code, _ = ask(http.MethodPost, "/livez")
	require.Equal(t, http.StatusMethodNotAllowed, code)

	served.Redact = func(error) string { return "something" }
	_, text = ask(http.MethodGet, "/readyz")
	require.Equal(t, "something\n", text)
}

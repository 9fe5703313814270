package health_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/health"
)

func TestProbes(t *testing.T) {
	t.Parallel()
	why := errors.Join(errors.New("the database is away"), errors.New("so are the brokers"))
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
	require.Equal(t, "the database is away\nso are the brokers\n", text)
	code, text = ask(http.MethodGet, "/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "up 1\n", text)
	code, _ = ask(http.MethodPost, "/livez")
	require.Equal(t, http.StatusMethodNotAllowed, code)
}

func TestProbes_AnswerIsShortHoweverMuchIsWrong(t *testing.T) {
	t.Parallel()
	var errs []error
	for i := range 500 {
		errs = append(errs, fmt.Errorf("orders/%d is held", i))
	}
	served := health.Probes{Live: func() error { return errors.Join(errs...) }, Metrics: http.NotFoundHandler()}
	w := httptest.NewRecorder()
	served.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/livez", http.NoBody))
	got := strings.Split(strings.TrimSpace(w.Body.String()), "\n")
	require.Len(t, got, 51)
	require.Equal(t, "and 450 more", got[50])
}

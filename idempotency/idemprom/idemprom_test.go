package idemprom_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/idempotency"
	"github.com/headrace/headrace/idempotency/idemprom"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
)

const prefix = "headrace_idempotency_"

// scrape gives what m exports as in `unknown_keys{route=pay}`; of a histogram the count. types are the metrics'.
func scrape(t *testing.T, m *idemprom.Metrics) (values map[string]float64, types map[string]string) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(m))
	families, err := reg.Gather()
	require.NoError(t, err)
	values, types = map[string]float64{}, map[string]string{}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			var labels, names []string
			for _, l := range series.GetLabel() {
				labels, names = append(labels, l.GetName()+"="+l.GetValue()), append(names, l.GetName())
			}
			name := strings.TrimPrefix(f.GetName(), prefix)
			values[name+"{"+strings.Join(labels, ",")+"}"] = series.GetCounter().GetValue() + series.GetGauge().GetValue() +
				float64(series.GetHistogram().GetSampleCount())
			slices.Reverse(names)
			types[name+"{"+strings.Join(names, ",")+"}"] = strings.ToLower(f.GetType().String())
		}
	}
	return values, types
}

// service has a route of each mode: charge in Tx mode, pay in External mode.
type service struct {
	metrics *idemprom.Metrics
	pool    *pgxpool.Pool
	keys    *idempotency.Keys
	routes  map[string]http.Handler
}

func open(t *testing.T, pay http.HandlerFunc) *service {
	t.Helper()
	s := &service{metrics: idemprom.New(), pool: pgtest.New(t, migrations.Up), routes: map[string]http.Handler{}}
	keys, err := idempotency.New(s.pool, idempotency.Config{
		Principal: idempotency.OnePrincipal, Hooks: s.metrics.Hooks(), SweepEvery: 5 * time.Millisecond, Retention: time.Hour, Timeout: 10 * time.Second,
	})
	require.NoError(t, err)
	s.keys = keys
	s.routes["charge"] = keys.Tx("charge", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.routes["pay"] = keys.External("pay", pay, nil)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- keys.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return s
}

func (s *service) post(t *testing.T, route, key string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
	r.Header.Set(idempotency.Header, key)
	s.routes[route].ServeHTTP(httptest.NewRecorder(), r)
}

// row is a key of somebody else, of two hours ago: status null is unknown.
func (s *service) row(t *testing.T, route, status string) {
	t.Helper()
	_, err := s.pool.Exec(t.Context(), fmt.Sprintf(`insert into headrace.idempotency
		(route, method, principal, key, fingerprint, token, status, deadline, finished_at)
		select '%s', 'POST', '-', 'k', '', gen_random_uuid(), %s, past, case when %[2]s is not null then past end
		from (select statement_timestamp() - interval '2 h' past) p`, route, status))
	require.NoError(t, err)
}

// shows waits for a scrape that has all of want.
func (s *service) shows(t *testing.T, want map[string]float64) {
	t.Helper()
	require.Eventually(t, func() bool {
		got, _ := scrape(t, s.metrics)
		for name, value := range want {
			if v, is := got[name]; !is || v != value {
				return false
			}
		}
		return true
	}, 20*time.Second, 5*time.Millisecond)
}

func TestMetrics(t *testing.T) {
	t.Parallel()

	t.Run("CountRequestsByWhatBecameOfThem", func(t *testing.T) {
		t.Parallel()
		s := open(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
		s.post(t, "charge", "k")
		s.post(t, "charge", "k")
		s.post(t, "pay", "")
		s.post(t, "pay", "k")
		want := map[string]float64{
			"request_duration_seconds{route=charge}": 2, "request_duration_seconds{route=pay}": 2,
			"in_flight_requests{route=charge}": 0, "in_flight_requests{route=pay}": 0,
		}
		for _, o := range idempotency.Outcomes {
			for route := range s.routes {
				want[fmt.Sprintf("requests_total{outcome=%s,route=%s}", o, route)] = 0
			}
		}
		for _, one := range []string{"executed,route=charge", "replayed,route=charge", "refused,route=pay", "unknown,route=pay"} {
			want["requests_total{outcome="+one+"}"] = 1
		}
		s.shows(t, want)
	})

	t.Run("ShowWhatIsNotFinishedUntilItIs", func(t *testing.T) {
		t.Parallel()
		began, goOn := make(chan struct{}), make(chan struct{})
		s := open(t, func(http.ResponseWriter, *http.Request) {
			close(began)
			<-goOn
		})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.post(t, "pay", "k")
		}()
		<-began
		s.row(t, "renamed", "null::smallint")
		s.shows(t, map[string]float64{
			"in_flight_requests{route=pay}": 1, "in_flight_requests{route=charge}": 0,
			"running_keys{route=pay}": 1, "running_keys{route=charge}": 0, "running_keys{route=renamed}": 0,
			"unknown_keys{route=pay}": 0, "unknown_keys{route=charge}": 0, "unknown_keys{route=renamed}": 1,
		})
		oldest, _ := scrape(t, s.metrics)
		require.InDelta(t, 7200, oldest["unknown_oldest_seconds{route=renamed}"], 600)
		close(goOn)
		<-ended
		list, err := s.keys.Unknown(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.NoError(t, s.keys.ResolveNotDone(t.Context(), list[0]))
		s.shows(t, map[string]float64{"running_keys{route=pay}": 0, "unknown_keys{route=pay}": 0})
		require.Eventually(t, func() bool {
			got, _ := scrape(t, s.metrics)
			_, there := got["unknown_keys{route=renamed}"]
			return !there
		}, 20*time.Second, 5*time.Millisecond, "a route that nobody has any more, and no key of it")
	})

	t.Run("CountWhatIsSwept", func(t *testing.T) {
		t.Parallel()
		s := open(t, func(http.ResponseWriter, *http.Request) {})
		s.shows(t, map[string]float64{"swept_keys_total{}": 0})
		s.row(t, "old", "200")
		s.shows(t, map[string]float64{"swept_keys_total{}": 1})
	})
}

func TestMetrics_StandInTheDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/idempotency.md")
	require.NoError(t, err)
	s := open(t, func(http.ResponseWriter, *http.Request) {})
	_, types := scrape(t, s.metrics)
	for name, of := range types {
		require.Contains(t, string(page), "| `"+name+"` | "+of+" | ")
	}
	_, section, _ := strings.Cut(string(page), "## Metrics")
	require.Equal(t, len(types), strings.Count(section, "` | counter | ")+strings.Count(section, "` | gauge | ")+strings.Count(section, "` | histogram | "))
	for _, o := range idempotency.Outcomes {
		require.Contains(t, section, "`"+o+"`")
	}
}

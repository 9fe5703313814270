package idempotency_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/idempotency"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
)

// effects has nothing unique but its id: an effect too many is there to be counted.
const effects = "create table effects (id bigint generated always as identity primary key, key text not null)"

func withEffects(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, effects)
	return err
}

// bed is a service with keys, and its database.
type bed struct {
	t    *testing.T
	pool *pgxpool.Pool
	keys *idempotency.Keys
	url  string

	mu       sync.Mutex
	outcomes map[string]int
}

type option func(*bed, *idempotency.Config)

func open(t *testing.T, mount func(*bed) http.Handler, options ...option) *bed {
	t.Helper()
	b := &bed{t: t, pool: pgtest.New(t, migrations.Up, withEffects), outcomes: map[string]int{}}
	cfg := idempotency.Config{
		Principal: func(r *http.Request) string { return r.Header.Get("Tenant") },
		Logger:    slog.New(slog.DiscardHandler),
		Hooks: idempotency.Hooks{OnRequest: func(i idempotency.RequestInfo) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.outcomes[i.Outcome]++
		}},
	}
	for _, o := range options {
		o(b, &cfg)
	}
	keys, err := idempotency.New(b.pool, cfg)
	require.NoError(t, err)
	require.NoError(t, keys.Check(t.Context()))
	b.keys = keys
	server := httptest.NewUnstartedServer(mount(b))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

// tx is the service whose handler is h, in Tx mode; external in External mode.
func tx(h http.HandlerFunc) func(*bed) http.Handler {
	return func(b *bed) http.Handler { return b.keys.Tx("charge", h) }
}

func external(h http.HandlerFunc, reconcile idempotency.Reconcile) func(*bed) http.Handler {
	return func(b *bed) http.Handler { return b.keys.External("charge", h, reconcile) }
}

// charge is the ordinary Tx handler.
func charge(w http.ResponseWriter, r *http.Request) {
	id, err := effect(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	created(w, id)
}

func created(w http.ResponseWriter, id int64) {
	w.Header().Set("Location", fmt.Sprintf("/charges/%d", id))
	w.Header().Set("Set-Cookie", "session=secret")
	w.Header().Set("X-Trace", "of this request")
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, "charge %d", id)
}

func effect(r *http.Request) (id int64, err error) {
	key, _ := idempotency.KeyOf(r.Context())
	err = idempotency.Tx(r.Context()).QueryRow(r.Context(), "insert into effects (key) values ($1) returning id", key.Key).Scan(&id)
	return id, err
}

// response is an answer that was read.
type response struct {
	status int
	header http.Header
	body   string
	err    error
}

func (r response) problem(t *testing.T) string {
	t.Helper()
	require.NoError(t, r.err)
	require.Equal(t, "application/problem+json", r.header.Get("Content-Type"))
	var p struct {
		Type, Title string
		Status      int
	}
	require.NoError(t, json.Unmarshal([]byte(r.body), &p))
	require.Equal(t, r.status, p.Status)
	require.NotEmpty(t, p.Title)
	return strings.TrimPrefix(p.Type, "urn:headrace:idempotency:")
}

func (r response) replayed() bool { return r.header.Get("Idempotency-Replayed") == "true" }

// post sends a request with a key.
func (b *bed) post(key, body string, change ...func(*http.Request)) response {
	return post(b.t.Context(), b.url, key, body, change...)
}

func post(ctx context.Context, url, key, body string, change ...func(*http.Request)) response {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/charges", strings.NewReader(body))
	if err != nil {
		return response{err: err}
	}
	r.Header["idempotency-key"] = []string{key} // net/http would resend what has the canonical name
	r.Header.Set("Tenant", "acme")
	for _, f := range change {
		f(r)
	}
	return do(r)
}

func do(r *http.Request) response {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		return response{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return response{status: resp.StatusCode, header: resp.Header, body: string(body), err: err}
}

// effects is how many there are of key.
func (b *bed) effects(key string) (n int) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), "select count(*) from effects where key = $1", key).Scan(&n))
	return n
}

// rows is how many keys the table has.
func (b *bed) rows() (n int) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(b.t.Context(), "select count(*) from headrace.idempotency").Scan(&n))
	return n
}

func (b *bed) told(outcome string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.outcomes[outcome]
}

// until waits for what is about to be.
func (b *bed) until(is func() bool) {
	b.t.Helper()
	require.Eventually(b.t, is, 20*time.Second, 5*time.Millisecond)
}

func (b *bed) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
}

// expire makes every running key's deadline pass.
func (b *bed) expire() {
	b.t.Helper()
	b.exec("update headrace.idempotency set deadline = statement_timestamp() - interval '1 s' where status is null")
}

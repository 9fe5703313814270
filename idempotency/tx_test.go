package idempotency_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/idempotency"
)

func TestTx(t *testing.T) {
	t.Parallel()

	t.Run("RepeatsTheFirstAnswerWithoutRunningAgain", func(t *testing.T) {
		t.Parallel()
		b := open(t, tx(charge), func(_ *bed, c *idempotency.Config) { c.Headers = []string{"x-kept"} })
		first := b.post("k", "7")
		require.Equal(t, http.StatusCreated, first.status, first.body)
		require.False(t, first.replayed())
		require.NotEmpty(t, first.header.Get("Set-Cookie"), "the first answer is the handler's")

		again := b.post("k", "7")
		require.True(t, again.replayed())
		require.Equal(t, first.status, again.status)
		require.Equal(t, first.body, again.body)
		for _, kept := range []string{"Location", "Content-Type"} {
			require.Equal(t, first.header.Get(kept), again.header.Get(kept), kept)
		}
		require.Empty(t, again.header.Values("Set-Cookie"))
		require.Empty(t, again.header.Values("X-Trace"), "what is not on the list is of its request")
		require.Equal(t, 1, b.effects("k"))
		require.Equal(t, 1, b.told(idempotency.Executed))
		require.Equal(t, 1, b.told(idempotency.Replayed))
	})

	// A handler that wants no type had one in its replay: net/http guessed it.
	t.Run("ARepeatHasNoTypeEitherWhereTheHandlerWantsNone", func(t *testing.T) {
		t.Parallel()
		b := open(t, tx(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, "<html>")
		}))
		first, again := b.post("k", "7"), b.post("k", "7")
		require.True(t, again.replayed())
		for _, r := range []response{first, again} {
			require.NotContains(t, r.header, "Content-Type")
			require.Equal(t, "<html>", r.body)
		}
	})

	t.Run("AKeyIsTheSameInQuotes", func(t *testing.T) {
		t.Parallel()
		b := open(t, tx(charge))
		require.Equal(t, http.StatusCreated, b.post(`"k"`, "7").status)
		require.True(t, b.post("k", "7").replayed())
	})

	t.Run("RefusesAKeyWithAnotherRequest", func(t *testing.T) {
		t.Parallel()
		b := open(t, tx(charge))
		require.Equal(t, http.StatusCreated, b.post("k", "7").status)
		for name, change := range map[string]func(*http.Request){
			"body":  func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("8")) },
			"path":  func(r *http.Request) { r.URL.Path = "/others" },
			"query": func(r *http.Request) { r.URL.RawQuery = "a=b" },
		} {
			other := b.post("k", "7", change)
			require.Equal(t, http.StatusUnprocessableEntity, other.status, name)
			require.Equal(t, "key-reused", other.problem(t))
		}
		require.Equal(t, 1, b.effects("k"))
	})

	t.Run("KeepsPrincipalsMethodsAndRoutesApart", func(t *testing.T) {
		t.Parallel()
		b := open(t, func(b *bed) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/charges", b.keys.Tx("charge", http.HandlerFunc(charge)))
			mux.Handle("/refunds", b.keys.Tx("refund", http.HandlerFunc(charge)))
			return mux
		})
		for _, change := range []func(*http.Request){
			func(*http.Request) {},
			func(r *http.Request) { r.Header.Set("Tenant", "other") },
			func(r *http.Request) { r.Method = http.MethodPut },
			func(r *http.Request) { r.URL.Path = "/refunds" },
		} {
			first := b.post("k", "7", change)
			require.Equal(t, http.StatusCreated, first.status)
			require.False(t, first.replayed())
			require.Equal(t, first.body, b.post("k", "7", change).body)
		}
		require.Equal(t, 4, b.effects("k"))
	})

	t.Run("TellsWhoComesMeanwhileToWait", func(t *testing.T) {
		t.Parallel()
		began, goOn := make(chan struct{}), make(chan struct{})
		b := open(t, tx(func(w http.ResponseWriter, r *http.Request) {
			close(began)
			<-goOn
			charge(w, r)
		}))
		first := make(chan response)
		go func() { first <- b.post("k", "7") }()
		<-began
		meanwhile := b.post("k", "7")
		require.Equal(t, http.StatusConflict, meanwhile.status)
		require.Equal(t, "in-progress", meanwhile.problem(t))
		require.Equal(t, "1", meanwhile.header.Get("Retry-After"))
		close(goOn)
		require.Equal(t, http.StatusCreated, (<-first).status)
		require.True(t, b.post("k", "7").replayed())
		require.Equal(t, 1, b.effects("k"))
	})

	t.Run("StoresFinalFailuresWithTheirEffects", func(t *testing.T) {
		t.Parallel()
		b := open(t, tx(func(w http.ResponseWriter, r *http.Request) {
			_, _ = effect(r)
			w.WriteHeader(http.StatusPaymentRequired)
		}))
		require.False(t, b.post("k", "7").replayed())
		again := b.post("k", "7")
		require.True(t, again.replayed())
		require.Equal(t, http.StatusPaymentRequired, again.status)
		require.Equal(t, 1, b.effects("k"))
	})

	for name, answer := range map[string]http.HandlerFunc{
		"500": status(http.StatusInternalServerError),
		"503": status(http.StatusServiceUnavailable),
		"429": status(http.StatusTooManyRequests),
		"401": status(http.StatusUnauthorized),
		"Forget": func(w http.ResponseWriter, r *http.Request) {
			idempotency.Forget(r.Context())
			w.WriteHeader(http.StatusOK)
		},
		"Panic": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"FailedSQL": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = idempotency.Tx(r.Context()).Exec(r.Context(), "select 1/0")
		},
		"5MiBAnswer": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 5<<20)) },
	} {
		t.Run(name+"RollsBackAndFreesTheKey", func(t *testing.T) {
			t.Parallel()
			var once sync.Once
			b := open(t, tx(func(w http.ResponseWriter, r *http.Request) {
				failed := false
				once.Do(func() {
					failed = true
					_, _ = effect(r)
					answer(w, r)
				})
				if !failed {
					charge(w, r)
				}
			}))
			first := b.post("k", "7")
			require.NotEqual(t, http.StatusCreated, first.status)
			require.Less(t, len(first.body), 1<<20)
			require.Zero(t, b.effects("k"))
			require.Zero(t, b.rows())
			second := b.post("k", "7")
			require.Equal(t, http.StatusCreated, second.status)
			require.False(t, second.replayed())
			require.Equal(t, 1, b.effects("k"))
		})
	}

	t.Run("TheWriterSendsNothingBeforeTheCommit", func(t *testing.T) {
		t.Parallel()
		b := open(t, tx(func(w http.ResponseWriter, r *http.Request) {
			flush := http.NewResponseController(w).Flush()
			_, _, hijack := http.NewResponseController(w).Hijack()
			w.WriteHeader(http.StatusEarlyHints)
			charge(w, r)
			_, _ = fmt.Fprint(w, errors.Is(flush, http.ErrNotSupported), errors.Is(hijack, http.ErrNotSupported))
		}))
		first := b.post("k", "7")
		require.Equal(t, http.StatusCreated, first.status)
		require.Equal(t, "charge 1true true", first.body)
	})
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func TestRequestsThatAreNotRun(t *testing.T) {
	t.Parallel()
	b := open(t, func(b *bed) http.Handler {
		return b.keys.Tx("charge", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if idempotency.Tx(r.Context()) == nil {
				w.WriteHeader(http.StatusTeapot)
				return
			}
			charge(w, r)
		}))
	})
	for name, tc := range map[string]struct {
		change  func(*http.Request)
		body    string
		status  int
		problem string
	}{
		"without a key":        {func(r *http.Request) { delete(r.Header, "idempotency-key") }, "7", 400, "key-invalid"},
		"with an empty key":    {func(r *http.Request) { r.Header["idempotency-key"] = []string{`""`} }, "7", 400, "key-invalid"},
		"with two keys":        {func(r *http.Request) { r.Header["idempotency-key"] = []string{"a", "b"} }, "7", 400, "key-invalid"},
		"with a long key":      {func(r *http.Request) { r.Header["idempotency-key"] = []string{strings.Repeat("k", 256)} }, "7", 400, "key-invalid"},
		"with a strange key":   {func(r *http.Request) { r.Header["idempotency-key"] = []string{"k\xff"} }, "7", 400, "key-invalid"},
		"of nobody":            {func(r *http.Request) { r.Header.Del("Tenant") }, "7", 401, "unauthenticated"},
		"of a strange caller":  {func(r *http.Request) { r.Header.Set("Tenant", strings.Repeat("t", 256)) }, "7", 500, "not-committed"},
		"longer than MaxBytes": {nil, strings.Repeat("x", 1<<20+1), 413, "request-too-large"},
	} {
		got := b.post("k", tc.body, func(r *http.Request) {
			if tc.change != nil {
				tc.change(r)
			}
		})
		require.Equal(t, tc.status, got.status, name)
		require.Equal(t, tc.problem, got.problem(t), name)
	}
	require.Zero(t, b.rows())
	require.Equal(t, http.StatusTeapot, b.post("k", "", func(r *http.Request) { r.Method, r.Body = http.MethodGet, http.NoBody }).status, "a safe method passes")
	require.Equal(t, http.StatusCreated, b.post("k", strings.Repeat("x", 1<<20)).status, "MaxBytes are not too many")
}

// A repeat that meets the end of the first request must see its row: whoever has the lock has committed.
func TestTx_RunsOnceWhoeverComesAtTheSameTime(t *testing.T) {
	t.Parallel()
	b := open(t, tx(charge))
	var wg sync.WaitGroup
	for n := range 300 {
		key := string(rune('a'+n%26)) + "-" + string(rune('a'+n/26%2))
		wg.Go(func() {
			for {
				r := b.post(key, "7")
				if r.err != nil || r.status != http.StatusConflict {
					if r.err != nil || r.status != http.StatusCreated {
						t.Errorf("%s: %d %v %s", key, r.status, r.err, r.body)
					}
					return
				}
			}
		})
	}
	wg.Wait()
	var most int
	require.NoError(t, b.pool.QueryRow(t.Context(), "select max(n) from (select count(*) n from effects group by key) e").Scan(&most))
	require.Equal(t, 1, most)
	require.Equal(t, 52, b.rows())
}

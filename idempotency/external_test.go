package idempotency_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/idempotency"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
)

// world is where External handlers have their effects.
type world struct{ done atomic.Int64 }

func (x *world) charge(w http.ResponseWriter, _ *http.Request) { created(w, x.done.Add(1)) }

func TestExternal(t *testing.T) {
	t.Parallel()

	t.Run("RepeatsTheFirstAnswerWithoutRunningAgain", func(t *testing.T) {
		t.Parallel()
		var x world
		b := open(t, external(x.charge, nil))
		first, again := b.post("k", "7"), b.post("k", "7")
		require.Equal(t, http.StatusCreated, first.status)
		require.True(t, again.replayed())
		require.Equal(t, first.body, again.body)
		require.Equal(t, first.header.Get("Location"), again.header.Get("Location"))
		require.Equal(t, http.StatusUnprocessableEntity, b.post("k", "8").status)
		require.EqualValues(t, 1, x.done.Load())
	})

	// With a lease that ends, a handler slower than it was run three times.
	t.Run("IsNeverTakenOverByTime", func(t *testing.T) {
		t.Parallel()
		var x world
		began, goOn := make(chan struct{}), make(chan struct{})
		b := open(t, external(func(w http.ResponseWriter, r *http.Request) {
			close(began)
			<-goOn
			x.charge(w, r)
		}, nil))
		first := make(chan response)
		go func() { first <- b.post("k", "7") }()
		<-began
		require.Equal(t, "in-progress", b.post("k", "7").problem(t))
		require.Equal(t, "key-reused", b.post("k", "8").problem(t), "its row is there to be compared")
		b.expire()
		unknown := b.post("k", "7")
		require.Equal(t, http.StatusConflict, unknown.status)
		require.Equal(t, "outcome-unknown", unknown.problem(t))
		require.NotEmpty(t, unknown.header.Get("Retry-After"))
		close(goOn)
		require.Equal(t, http.StatusCreated, (<-first).status)
		require.True(t, b.post("k", "7").replayed(), "the owner was slow, and has told")
		require.EqualValues(t, 1, x.done.Load())
	})

	t.Run("TheHandlersTimeEndsAlthoughItsClientsDoesNot", func(t *testing.T) {
		t.Parallel()
		b := open(t, external(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			w.WriteHeader(http.StatusGatewayTimeout)
		}, nil), func(_ *bed, c *idempotency.Config) { c.Timeout = 50 * time.Millisecond })
		require.Equal(t, http.StatusGatewayTimeout, b.post("k", "7").status)
		require.Equal(t, "outcome-unknown", b.post("k", "7").problem(t))
	})

	// Its time would end after the key is unknown, and somebody else may run by then.
	t.Run("IsNotRunWhenTheReplyToItsClaimIsLate", func(t *testing.T) {
		t.Parallel()
		var x world
		dsn := pgtest.DSN(t, migrations.Up, withEffects)
		proxy, direct := pgtest.NewProxy(t, dsn), pgtest.Pool(t, dsn)
		b := open(t, external(x.charge, nil), func(b *bed, c *idempotency.Config) {
			b.pool, c.Timeout = pgtest.Pool(t, proxy.DSN()), 100*time.Millisecond
		})
		unknown := make(chan struct{})
		proxy.Once(pgtest.SQL("on conflict do nothing"), pgtest.HoldReply(unknown))
		first := make(chan response)
		go func() { first <- b.post("k", "7") }()
		b.until(func() bool {
			var n int
			err := direct.QueryRow(t.Context(), "select count(*) from headrace.idempotency where deadline <= statement_timestamp()").Scan(&n)
			return err == nil && n == 1
		})
		close(unknown)
		require.Equal(t, "unavailable", (<-first).problem(t))
		require.Zero(t, x.done.Load())
		require.Equal(t, http.StatusCreated, b.post("k", "7").status, "the key is free: nothing was done")
		require.EqualValues(t, 1, x.done.Load())
	})

	t.Run("GoesOnWhenItsClientHangsUp", func(t *testing.T) {
		t.Parallel()
		var x world
		began, goOn := make(chan struct{}), make(chan struct{})
		b := open(t, external(func(w http.ResponseWriter, r *http.Request) {
			close(began)
			<-goOn
			x.charge(w, r)
		}, nil))
		ctx, hangUp := context.WithCancel(t.Context())
		first := make(chan response)
		go func() { first <- post(ctx, b.url, "k", "7") }()
		<-began
		hangUp()
		require.ErrorIs(t, (<-first).err, context.Canceled)
		close(goOn)
		b.until(func() bool { return b.post("k", "7").replayed() })
		require.EqualValues(t, 1, x.done.Load())
	})

	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		note   string
	}{
		"5xx":        {status(http.StatusBadGateway), "it was answered 502"},
		"Panic":      {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "the handler panicked"},
		"5MiBAnswer": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 5<<20)) }, "it was answered 200 with more than 1048576 bytes"},
	} {
		t.Run(name+"LeavesTheKeyUnknownAtOnce", func(t *testing.T) {
			t.Parallel()
			b := open(t, external(tc.answer, nil))
			b.post("k", "7")
			require.Equal(t, "outcome-unknown", b.post("k", "7").problem(t))
			list, err := b.keys.Unknown(t.Context(), 10)
			require.NoError(t, err)
			require.Len(t, list, 1)
			require.Equal(t, tc.note, list[0].Note)
			require.Equal(t, idempotency.Key{Route: "charge", Method: http.MethodPost, Principal: "acme", Key: "k"}, list[0].Key)
			require.False(t, list[0].Since.IsZero())
		})
	}

	for name, answer := range map[string]http.HandlerFunc{
		"429": status(http.StatusTooManyRequests),
		"Forget": func(w http.ResponseWriter, r *http.Request) {
			idempotency.Forget(r.Context())
			w.WriteHeader(http.StatusBadGateway)
		},
	} {
		t.Run(name+"FreesTheKey", func(t *testing.T) {
			t.Parallel()
			var x world
			var once sync.Once
			b := open(t, external(func(w http.ResponseWriter, r *http.Request) {
				h := http.HandlerFunc(x.charge)
				once.Do(func() { h = answer })
				h(w, r)
			}, nil))
			require.NotEqual(t, http.StatusCreated, b.post("k", "7").status)
			require.Equal(t, http.StatusCreated, b.post("k", "7").status)
			require.EqualValues(t, 1, x.done.Load())
		})
	}

	t.Run("AnAnswerThatCannotBeStoredIsGivenAllTheSame", func(t *testing.T) {
		t.Parallel()
		var x world
		b := open(t, func(b *bed) http.Handler {
			return b.keys.External("charge", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b.exec("alter table headrace.idempotency add constraint never check (status is null)")
				x.charge(w, r)
			}), nil)
		})
		require.Equal(t, http.StatusCreated, b.post("k", "7").status)
		require.Equal(t, 1, b.told(idempotency.Lost))
		b.expire()
		require.Equal(t, "outcome-unknown", b.post("k", "7").problem(t))
		require.EqualValues(t, 1, x.done.Load())
	})

	t.Run("TheFinishIsTriedAgain", func(t *testing.T) {
		t.Parallel()
		var x world
		proxy := pgtest.NewProxy(t, pgtest.DSN(t, migrations.Up, withEffects))
		b := open(t, external(func(w http.ResponseWriter, r *http.Request) {
			proxy.Once(pgtest.SQL("finished_at = statement_timestamp()"), pgtest.CutReply)
			x.charge(w, r)
		}, nil), func(b *bed, _ *idempotency.Config) { b.pool = pgtest.Pool(t, proxy.DSN()) })
		require.Equal(t, http.StatusCreated, b.post("k", "7").status, "its reply was lost, and it is sent again")
		require.True(t, b.post("k", "7").replayed())
	})
}

package idempotency_test

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/idempotency"
)

func TestReconcile(t *testing.T) {
	t.Parallel()

	// crash leaves a key as a process does that was killed while its handler ran.
	crash := func(b *bed, key string) {
		b.t.Helper()
		b.post(key, "7", func(r *http.Request) { r.Header.Set("Crash", "yes") })
	}
	serve := func(x *world, reconcile idempotency.Reconcile) func(*bed) http.Handler {
		return external(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Crash") != "" {
				panic(http.ErrAbortHandler)
			}
			x.charge(w, r)
		}, reconcile)
	}

	t.Run("DoneIsTheAnswerFromThenOn", func(t *testing.T) {
		t.Parallel()
		var x world
		b := open(t, serve(&x, func(w http.ResponseWriter, r *http.Request) idempotency.Verdict {
			key, _ := idempotency.KeyOf(r.Context())
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "charge of "+key.Key)
			return idempotency.Done
		}))
		crash(b, "k")
		for range 2 {
			r := b.post("k", "7")
			require.True(t, r.replayed())
			require.Equal(t, "charge of k", r.body)
		}
		require.Zero(t, x.done.Load())
	})

	t.Run("NotDoneIsRunOnceHoweverManyAsk", func(t *testing.T) {
		t.Parallel()
		var x world
		var asked atomic.Int32
		b := open(t, serve(&x, func(http.ResponseWriter, *http.Request) idempotency.Verdict {
			asked.Add(1)
			return idempotency.NotDone
		}))
		crash(b, "k")
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() {
				b.until(func() bool { return b.post("k", "7").status == http.StatusCreated })
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, x.done.Load())
		require.EqualValues(t, 1, asked.Load())
	})

	t.Run("StillUnknownIsAskedAgain", func(t *testing.T) {
		t.Parallel()
		var x world
		verdicts := make(chan idempotency.Verdict, 2)
		verdicts <- idempotency.StillUnknown
		verdicts <- idempotency.NotDone
		b := open(t, serve(&x, func(http.ResponseWriter, *http.Request) idempotency.Verdict { return <-verdicts }))
		crash(b, "k")
		require.Equal(t, "outcome-unknown", b.post("k", "7").problem(t))
		require.Equal(t, http.StatusCreated, b.post("k", "7").status)
	})

	t.Run("AnotherBodyIsNotAskedFor", func(t *testing.T) {
		t.Parallel()
		var x world
		b := open(t, serve(&x, func(http.ResponseWriter, *http.Request) idempotency.Verdict { panic("it was asked") }))
		crash(b, "k")
		require.Equal(t, http.StatusUnprocessableEntity, b.post("k", "8").status)
	})

	t.Run("APanicLeavesItUnknown", func(t *testing.T) {
		t.Parallel()
		var x world
		var asked atomic.Int32
		b := open(t, serve(&x, func(http.ResponseWriter, *http.Request) idempotency.Verdict {
			if asked.Add(1) == 1 {
				panic(http.ErrAbortHandler)
			}
			return idempotency.NotDone
		}))
		crash(b, "k")
		require.Error(t, b.post("k", "7").err)
		require.Equal(t, http.StatusCreated, b.post("k", "7").status)
	})

	t.Run("AnOwnerThatWasTakenForDeadCannotChangeWhatWasDecided", func(t *testing.T) {
		t.Parallel()
		began, goOn := make(chan struct{}), make(chan struct{})
		var runs atomic.Int32
		b := open(t, external(func(w http.ResponseWriter, _ *http.Request) {
			run := runs.Add(1)
			if run == 1 {
				close(began)
				<-goOn
			}
			created(w, int64(run))
		}, func(http.ResponseWriter, *http.Request) idempotency.Verdict { return idempotency.NotDone }))
		first := make(chan response)
		go func() { first <- b.post("k", "7") }()
		<-began
		b.expire()
		require.Equal(t, "charge 2", b.post("k", "7").body)
		close(goOn)
		require.Equal(t, "outcome-unknown", (<-first).problem(t))
		require.Equal(t, 1, b.told(idempotency.Lost))
		require.Equal(t, "charge 2", b.post("k", "7").body)
	})
}

func TestOperator(t *testing.T) {
	t.Parallel()
	var x world
	fails := true
	b := open(t, external(func(w http.ResponseWriter, r *http.Request) {
		if fails {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		x.charge(w, r)
	}, nil))
	for _, key := range []string{"done", "not done"} {
		b.post(key, "7")
	}
	fails = false
	list, err := b.keys.Unknown(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, list, 2)

	answer := idempotency.Answer{Status: http.StatusCreated, Body: []byte("charge 9")}
	require.ErrorContains(t, b.keys.ResolveDone(t.Context(), list[0], idempotency.Answer{Status: 503}), "503")
	require.NoError(t, b.keys.ResolveDone(t.Context(), list[0], answer))
	require.NoError(t, b.keys.ResolveNotDone(t.Context(), list[1]))
	for _, u := range list {
		require.ErrorIs(t, b.keys.ResolveNotDone(t.Context(), u), idempotency.ErrNotUnknown)
		require.ErrorIs(t, b.keys.ResolveDone(t.Context(), u, answer), idempotency.ErrNotUnknown)
	}
	require.Equal(t, "charge 9", b.post("done", "7").body)
	require.Equal(t, "charge 1", b.post("not done", "7").body)
	list, err = b.keys.Unknown(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, list)
}

// Two operators have the same list. What the second has found out is of a run that is over.
func TestOperator_DecidesOfTheRunThatWasListed(t *testing.T) {
	t.Parallel()
	var x world
	b := open(t, external(func(w http.ResponseWriter, r *http.Request) {
		x.done.Add(1)
		w.WriteHeader(http.StatusBadGateway)
	}, nil))
	unknown := func() idempotency.UnknownKey {
		list, err := b.keys.Unknown(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, list, 1)
		return list[0]
	}
	b.post("k", "7")
	before := unknown()
	require.NoError(t, b.keys.ResolveNotDone(t.Context(), before))
	b.post("k", "7")
	require.ErrorIs(t, b.keys.ResolveNotDone(t.Context(), before), idempotency.ErrNotUnknown)
	require.ErrorIs(t, b.keys.ResolveDone(t.Context(), before, idempotency.Answer{Status: http.StatusCreated}), idempotency.ErrNotUnknown)
	require.Equal(t, "outcome-unknown", b.post("k", "7").problem(t))
	require.EqualValues(t, 2, x.done.Load())
	require.NoError(t, b.keys.ResolveDone(t.Context(), unknown(), idempotency.Answer{Status: http.StatusCreated}))
	require.True(t, b.post("k", "7").replayed())
}

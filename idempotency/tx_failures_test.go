package idempotency_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/idempotency"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
)

func TestTx_Failures(t *testing.T) {
	t.Parallel()

	t.Run("GoesOnWhenItsClientHangsUp", func(t *testing.T) {
		t.Parallel()
		began, goOn := make(chan struct{}), make(chan struct{})
		b := open(t, tx(func(w http.ResponseWriter, r *http.Request) {
			close(began)
			<-goOn
			charge(w, r)
		}))
		ctx, hangUp := context.WithCancel(t.Context())
		first := make(chan response)
		go func() { first <- post(ctx, b.url, "k", "7") }()
		<-began
		hangUp()
		require.ErrorIs(t, (<-first).err, context.Canceled)
		close(goOn)
		b.until(func() bool { return b.told(idempotency.Executed) == 1 })
		require.True(t, b.post("k", "7").replayed())
		require.Equal(t, 1, b.effects("k"))
	})

	t.Run("AHandlerThatHangsLosesItsTransactionAndTheKeyIsFree", func(t *testing.T) {
		t.Parallel()
		hung, goOn := make(chan struct{}), make(chan struct{})
		var runs atomic.Int32
		b := open(t, tx(func(w http.ResponseWriter, r *http.Request) {
			charge(w, r)
			if runs.Add(1) == 1 {
				close(hung)
				<-goOn
			}
		}), func(_ *bed, c *idempotency.Config) { c.Timeout = 300 * time.Millisecond })
		first := make(chan response)
		go func() { first <- b.post("k", "7") }()
		<-hung
		b.until(func() bool { return b.post("k", "7").status == http.StatusCreated })
		close(goOn)
		late := <-first
		require.Equal(t, http.StatusServiceUnavailable, late.status)
		require.Equal(t, "unavailable", late.problem(t))
		require.Equal(t, 1, b.effects("k"))
	})

	t.Run("AHandlerThatEndsTheTransactionIsFoundOut", func(t *testing.T) {
		t.Parallel()
		for _, sql := range []string{"commit", "rollback; begin"} {
			b := open(t, tx(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = idempotency.Tx(r.Context()).Exec(r.Context(), sql)
			}))
			require.Equal(t, http.StatusInternalServerError, b.post("k", "7").status, sql)
			require.Equal(t, 1, b.told(idempotency.Lost))
			require.Zero(t, b.rows())
		}
	})

	t.Run("AHandlerCannotCommitOrRollBack", func(t *testing.T) {
		t.Parallel()
		b := open(t, tx(func(w http.ResponseWriter, r *http.Request) {
			tx := idempotency.Tx(r.Context())
			err := errors.Join(tx.Commit(r.Context()), tx.Rollback(r.Context()))
			charge(w, r)
			_, _ = io.WriteString(w, err.Error())
		}))
		require.Contains(t, b.post("k", "7").body, "Forget")
		require.Equal(t, 1, b.effects("k"))
	})

	t.Run("ALostReplyToCommitIsFoundOutByTheRepeat", func(t *testing.T) {
		t.Parallel()
		proxy := pgtest.NewProxy(t, pgtest.DSN(t, migrations.Up, withEffects))
		b := open(t, tx(charge), func(b *bed, _ *idempotency.Config) { b.pool = pgtest.Pool(t, proxy.DSN()) })
		proxy.Once(pgtest.Commit, pgtest.CutReply)
		first := b.post("k", "7")
		require.Equal(t, http.StatusInternalServerError, first.status)
		require.Equal(t, "outcome-unknown", first.problem(t))
		b.until(func() bool { return b.post("k", "7").replayed() })
		require.Equal(t, 1, b.effects("k"))
	})

	t.Run("ACommitThatNeverCameIsRunAgain", func(t *testing.T) {
		t.Parallel()
		proxy := pgtest.NewProxy(t, pgtest.DSN(t, migrations.Up, withEffects))
		b := open(t, tx(charge), func(b *bed, _ *idempotency.Config) { b.pool = pgtest.Pool(t, proxy.DSN()) })
		proxy.Once(pgtest.Commit, pgtest.CutBefore)
		require.GreaterOrEqual(t, b.post("k", "7").status, 500)
		b.until(func() bool { return b.post("k", "7").status == http.StatusCreated })
		require.Equal(t, 1, b.effects("k"))
	})

	t.Run("ADeferredConstraintThatFailsAtCommitIsNoLostReply", func(t *testing.T) {
		t.Parallel()
		b := open(t, tx(charge))
		b.exec("alter table effects add constraint twice unique (key) deferrable initially deferred")
		b.exec("insert into effects (key) values ('k')")
		first := b.post("k", "7")
		require.Equal(t, http.StatusInternalServerError, first.status)
		require.Equal(t, "not-committed", first.problem(t))
		require.Equal(t, 1, b.told(idempotency.Failed))
	})

	t.Run("ADatabaseThatIsAwayIsNobodysAnswer", func(t *testing.T) {
		t.Parallel()
		b := open(t, tx(charge))
		b.exec("alter table headrace.idempotency rename to gone")
		first := b.post("k", "7")
		require.Equal(t, http.StatusServiceUnavailable, first.status)
		require.NotEmpty(t, first.header.Get("Retry-After"))
		b.exec("alter table headrace.gone rename to idempotency")
		require.Equal(t, http.StatusCreated, b.post("k", "7").status)
	})
}

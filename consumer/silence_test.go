package consumer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSilence is the regression of members that ended at start on a busy cluster: it had answered each question, but not all
// of them within half a minute, and the database was said to be silent that nobody had asked.
func TestSilence(t *testing.T) {
	t.Parallel()

	t.Run("WhoAnswersSlowlyIsWaitedFor", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, heard, stop := untilSilent(t.Context())
			defer stop()
			for range 10 {
				<-time.After(startTimeout - time.Nanosecond)
				require.NoError(t, ctx.Err())
				heard()
			}
			began := time.Now()
			<-ctx.Done()
			require.Equal(t, startTimeout, time.Since(began))
			require.Equal(t, errSilent, context.Cause(ctx))
		})
	})

	t.Run("WhoAnswersAfterTheEndChangesNothing", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, heard, stop := untilSilent(t.Context())
			<-ctx.Done()
			heard()
			require.Equal(t, errSilent, because(ctx, ctx.Err()))
			stop()
			require.Equal(t, errSilent, context.Cause(ctx))
		})
	})
}

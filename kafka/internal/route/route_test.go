package route

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/kafka/internal/claim"
	"github.com/headrace/headrace/record"
)

func config(reports *[]record.Report) Config {
	return Config{
		Line: claim.LineConfig{Name: "post", Order: claim.ByPartition, MaxBatch: 9, Lanes: 1}, DrainGrace: time.Second, HardGrace: time.Second,
		Report: func(r record.Report) { *reports = append(*reports, r) },
	}
}

func loaded(n int64) *claim.Claim {
	c := claim.New(claim.Config{Topic: "t"}, claim.Limit{Records: 100, Bytes: 1 << 30})
	for i := range n {
		c.Add([]*kgo.Record{{Offset: i, Value: []byte("v")}})
	}
	return c
}

func TestRoute(t *testing.T) {
	t.Parallel()

	t.Run("WhatOneSubscriptionLeavesTheNextOfItsNameGets", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var reports []record.Report
			table, c := make(Table), loaded(2)
			r := table.For("t", config(&reports))
			line := c.NewLine(r.Line)
			first := r.Subscribe(t.Context())
			r.Serve(c, line)
			msg := <-first.Messages()
			require.NotSame(t, r, table.For("t", config(&reports)), "a second of the name is another route while the first is served")
			first.End()
			<-first.Finished()
			require.Same(t, r, table.For("t", config(&reports)))
			next := r.Subscribe(t.Context())
			r.Serve(c, line)
			began := time.Now()
			again := <-next.Messages()
			require.Error(t, msg.Context().Err(), "the first one's handler had its grace")
			require.GreaterOrEqual(t, time.Since(began), 2*time.Second)
			rs, err := record.Records(again)
			require.NoError(t, err)
			require.Len(t, rs, 2)
			c.Close(record.ErrStopping)
			table.End()
			<-next.Finished()
			_, open := <-next.Messages()
			require.False(t, open)
		})
	})

	t.Run("ClaimThatIsLostIsNotToldAsEndedInOrder", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			for cause, want := range map[error]int{record.ErrRevoked: 1, record.ErrStopping: 1, record.ErrLost: 0} {
				var reports []record.Report
				cfg, ended := config(&reports), 0
				cfg.Started = func(context.Context, *record.Record) func(context.Context) {
					return func(context.Context) { ended++ }
				}
				table, c := make(Table), loaded(1)
				r := table.For("t", cfg)
				sub := r.Subscribe(t.Context())
				r.Serve(c, c.NewLine(r.Line))
				<-sub.Messages()
				c.EndSoft(cause)
				synctest.Wait()
				require.Equal(t, want, ended, cause)
				c.Close(cause)
				table.End()
				<-sub.Finished()
			}
		})
	})

	t.Run("NobodyServesIsToldOnce", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var reports []record.Report
			table := make(Table)
			ctx, end := context.WithCancel(t.Context())
			sub := table.For("t", config(&reports)).Subscribe(ctx)
			<-time.After(time.Hour)
			require.Empty(t, table.Gone(time.Second))
			end()
			<-sub.Finished()
			require.Empty(t, table.Gone(time.Second))
			<-time.After(time.Minute)
			gone := table.Gone(time.Second)
			require.Len(t, gone, 1)
			require.Equal(t, record.ReportSubscriptionGone, gone[0].ReportGone().Kind)
			require.Empty(t, table.Gone(time.Second))
		})
	})
}

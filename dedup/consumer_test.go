package dedup

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/record"
)

func (b *workbench) consumer() *Consumer {
	b.t.Helper()
	c, err := FindConsumer(b.t.Context(), b.pool, "billing", "post")
	require.NoError(b.t, err)
	return c
}

// said is what an operator says.
var said = Grave{Reason: "manual", Err: "not today"}

// requireSaid checks that the inbox gives r back as dead of what the operator said.
func (b *workbench) requireSaid(r *record.Record) {
	b.t.Helper()
	b.run([]*record.Record{r}, effect)
	var dead *DeadError
	require.ErrorAs(b.t, r.Err, &dead)
	require.Equal(b.t, DeadError{Reason: "manual", Text: "not today"}, *dead)
}

func TestConsumer_Bury(t *testing.T) {
	t.Parallel()
	eachStore(t, testConsumerBury)
}

func testConsumerBury(t *testing.T) {
	t.Parallel()

	bury := func(t *testing.T, c *Consumer, want Answer, r *record.Record) {
		t.Helper()
		looked, _, err := c.Look(t.Context(), r)
		require.NoError(t, err)
		got, err := c.Bury(t.Context(), r, said)
		require.NoError(t, err)
		require.Equal(t, want, got)
		if want != Buried {
			require.Equal(t, want, looked, "before it is said")
		}
	}

	t.Run("OfAnOperatorWhoIsCutOffTheServerKeepsNoLock", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		conn, err := b.pool.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		grave := newBurial(rec(newOwner(), 1, ""), said, storeOf(t) == ByOffset)
		_, err = writeGraves(t.Context(), conn.Conn(), b.rt.consumer, buryLockTimeout, []*burial{grave})
		require.NoError(t, err)
		var idle string
		require.NoError(t, conn.QueryRow(t.Context(), "show idle_in_transaction_session_timeout").Scan(&idle))
		require.Equal(t, "15s", idle)
		_, err = conn.Exec(t.Context(), "rollback")
		require.NoError(t, err)
	})

	t.Run("NextPassFindsItDeadAndNeverRunsIt", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		bury(t, b.consumer(), Buried, rec(o, 1, ""))
		answers, err := b.rt.Look(t.Context(), []*record.Record{rec(o, 1, "")})
		require.NoError(t, err)
		require.Equal(t, []Answer{DeadOwn}, answers)
		b.requireSaid(rec(o, 1, ""))
		require.Equal(t, DeadOwn, b.bury(rec(o, 1, ""), "manual"), "what comes before the letter")
		b.requireLedger(0)
	})

	t.Run("EffectedSkippedAndDeadStayWhatTheyAre", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		c := b.consumer()
		b.run([]*record.Record{rec(o, 1, "")}, effect)
		b.run([]*record.Record{rec(o, 2, "")}, skip)
		b.bury(rec(o, 3, ""), "exhausted")
		before := query[string](b, "select string_agg(i::text, ' ' order by i::text) from headrace.inbox i")
		bury(t, c, Own, rec(o, 1, ""))
		bury(t, c, DeadOwn, rec(o, 3, ""))
		if storeOf(t) == ByID {
			bury(t, c, OwnSkipped, rec(o, 2, ""))
			bury(t, c, Duplicate, recAs(o, 4, "", "id-1", "value-1"))
			bury(t, c, IDConflict, recAs(o, 5, "", "id-1", "another"))
		} else {
			bury(t, c, Own, rec(o, 2, "")) // how it ended, an offset does not say
			b.others = 1
		}
		require.Equal(t, before, query[string](b, "select string_agg(i::text, ' ' order by i::text) from headrace.inbox i"))
		_, why, err := c.Look(t.Context(), rec(o, 3, ""))
		require.NoError(t, err)
		require.Equal(t, Grave{Reason: "exhausted", Err: "it broke"}, why)
		b.requireLedger(1)
	})

	t.Run("SaidTwiceIsSaidOnce", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		bury(t, b.consumer(), Buried, rec(o, 1, ""))
		bury(t, b.consumer(), DeadOwn, rec(o, 1, ""))
		require.Equal(t, 1, query[int](b, "select count(*) from headrace.inbox"))
	})

	runByID(t, "RecordThatRunsAtThisMomentIsWaitedFor", "what runs is not waited for: it is fenced off, and rolled back", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			ends error
			want Answer
		}{
			"AndIsEffected": {nil, Own},
			"AndFails":      {errBoom, Buried},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b, o := newBench(t, setup{}), newOwner()
				running, end := make(chan struct{}), make(chan struct{})
				go func() {
					<-running
					// Once the burial waits for the row, and not before, the handler returns.
					for waits := 0; waits == 0; {
						waits = query[int](b, `select count(*) from pg_stat_activity
							where datname = current_database() and wait_event_type = 'Lock'`)
					}
					close(end)
				}()
				r := rec(o, 1, "")
				done := make(chan struct{})
				go func() {
					defer close(done)
					b.rt.Run(context.Background(), []*record.Record{r}, Apply(func(context.Context, pgx.Tx, *record.Record) error {
						close(running)
						<-end
						return c.ends
					}))
				}()
				await(t, running)
				got, err := b.consumer().Bury(t.Context(), rec(o, 1, ""), said)
				require.NoError(t, err)
				require.Equal(t, c.want, got)
				await(t, done)
			})
		}
	})

	runByID(t, "RecordThatRunsForLongIsBusy", "what runs is not waited for: it is fenced off, and rolled back", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		tx, err := b.pool.Begin(t.Context()) // another member's
		require.NoError(t, err)
		r := rec(o, 1, "")
		_, err = tx.Exec(t.Context(), `insert into headrace.inbox (consumer_id, message_id, value_hash, coordinates)
			select id, $1::text::uuid, 0, 0 from headrace.consumers`, r.Identity.Key.String())
		require.NoError(t, err)
		_, err = b.consumer().Bury(t.Context(), r, said)
		require.ErrorIs(t, err, errBusy)
		require.Equal(t, fault.ClassBusy, new(fault.Classifier).Classify(t.Context(), err).Class)
		require.NoError(t, tx.Rollback(t.Context()))
		bury(t, b.consumer(), Buried, r)
	})

	t.Run("ReplayTakesTheRowOver", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		bury(t, b.consumer(), Buried, rec(o, 1, ""))
		again := replay(o, rec(o, 1, ""), 7)
		b.run([]*record.Record{again}, effect)
		requireOutcomes(t, record.Effected, again)
		bury(t, b.consumer(), Own, rec(o, 1, ""))
		require.Equal(t, 1, query[int](b, "select count(*) from eff"))
	})

	t.Run("ReplayThatIsStuckIsDeadAgain", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		b.bury(rec(o, 1, ""), "exhausted")
		bury(t, b.consumer(), Buried, replay(o, rec(o, 1, ""), 7))
		b.requireSaid(replay(o, rec(o, 1, ""), 7))
		bury(t, b.consumer(), DeadOwn, rec(o, 1, ""))
	})

	t.Run("UnreadableIdentityGoesUnderItsCoordinates", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		unread := func() *record.Record {
			r := &record.Record{Topic: "orders", TopicID: topicID, Partition: 3, Offset: 9, Value: []byte("{")}
			r.Bind(o, o.soft, "")
			require.Error(t, Identify(r, Field("id")))
			return r
		}
		bury(t, b.consumer(), Buried, unread())
		require.Equal(t, KeyAt(topicID, 3, 9).String(), query[string](b, "select message_id::text from headrace.inbox"))
		require.Equal(t, DeadOwn, b.bury(unread(), "undecodable"), "what its consumer says of it")
	})

	t.Run("TextThatPostgresDoesNotTakeIsCleaned", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		got, err := b.consumer().Bury(t.Context(), rec(o, 1, ""), Grave{Reason: "manual", Err: "a\x00b\xff"})
		require.NoError(t, err)
		require.Equal(t, Buried, got)
		require.Equal(t, "a\uFFFDb\uFFFD", query[string](b, "select error from headrace.inbox"))
	})

	t.Run("EndedContextEndsTheWait", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		c := b.consumer()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errBoom)
		_, err := c.Bury(ctx, rec(o, 1, ""), said)
		require.ErrorIs(t, err, errBoom)
	})
}

func TestFindConsumer(t *testing.T) {
	t.Parallel()

	t.Run("UnknownOneIsAnErrorWithThoseThatThereAre", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		_, err := b.in.Route(t.Context(), named(RouteConfig{Name: "archive"}))
		require.NoError(t, err)
		for _, name := range [][2]string{{"billing", "pots"}, {"bill", "post"}, {"", ""}} {
			_, err := FindConsumer(t.Context(), b.pool, name[0], name[1])
			var unknown *UnknownRouteError
			require.ErrorAs(t, err, &unknown)
			require.Equal(t, []string{"billing/archive", "billing/post"}, unknown.Known)
			require.ErrorContains(t, err, name[1])
			require.Contains(t, unknown.Hint(), "billing/archive, billing/post")
		}
		require.Equal(t, 2, query[int](b, "select count(*) from headrace.consumers"), "none is made")
	})

	t.Run("EmptyInboxSaysSo", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		b.exec("delete from headrace.consumers")
		_, err := FindConsumer(t.Context(), b.pool, "billing", "post")
		var hint interface{ Hint() string }
		require.ErrorAs(t, err, &hint)
		require.Contains(t, hint.Hint(), "no route at all")
	})

	t.Run("DatabaseWithoutAnInbox", func(t *testing.T) {
		t.Parallel()
		_, err := FindConsumer(t.Context(), pgtest.New(t), "billing", "post")
		require.ErrorIs(t, err, ErrNoSchema)
	})
}

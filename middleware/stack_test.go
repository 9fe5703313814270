package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	stock "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

var (
	_ kafka.Gate = (*downstream.Gate)(nil)
	_ kafka.Gate = (*middleware.Gates)(nil)
)

func nothing(*message.Message) error { return nil }

// deliver hands one message of rs to h and gives what h said.
func deliver(h message.HandlerFunc, c *claim, rs ...*record.Record) (*message.Message, error) {
	c.add(rs...)
	msg := record.NewMessage(c.hard, c.next().rs)
	_, err := h(msg)
	return msg, err
}

func TestStack(t *testing.T) {
	t.Parallel()

	t.Run("RefusesARouteThatCannotWorkWithAllItsProblems", func(t *testing.T) {
		t.Parallel()
		_, err := middleware.Stack(&middleware.Route{Retry: middleware.Policy{Base: time.Minute, Attempts: -1}})
		for _, part := range []string{"Name", "Group", "Inbox", "Graves", "DeadLetters", "Cap (10s)", "Base (1m0s)", "Attempts (-1)"} {
			require.ErrorContains(t, err, part)
		}
	})

	t.Run("VerifyKnowsTheOrder", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		layers, err := middleware.Stack(b.rt)
		require.NoError(t, err)
		require.NoError(t, middleware.Verify(layers...))
		require.NoError(t, middleware.Verify(append([]message.HandlerMiddleware{stock.Recoverer}, layers...)...))
		for i := range layers {
			for j := range layers {
				wrong := append([]message.HandlerMiddleware(nil), layers...)
				if wrong[i], wrong[j] = wrong[j], wrong[i]; i != j {
					require.ErrorIs(t, middleware.Verify(wrong...), middleware.ErrOrder, "%d and %d exchanged", i, j)
				}
			}
			missing := append(append([]message.HandlerMiddleware(nil), layers[:i]...), layers[i+1:]...)
			require.ErrorIs(t, middleware.Verify(missing...), middleware.ErrOrder, "%d missing", i)
		}
		require.ErrorContains(t, middleware.Verify(layers[1], layers[0]), "have observe ► guard, want guard ► observe ► retry ► decode ► call ► inbox")
	})

	bubble(t, "WrongOrderGivesBackAndReportsOnce", func(t *testing.T) {
		b := newBench(t)
		ran := 0
		l, err := middleware.Stack(b.rt)
		require.NoError(t, err)
		for _, wrong := range [][]message.HandlerMiddleware{
			{l[0], l[2], l[1], l[3], l[4], l[5]},
			{l[1], l[2], l[3], l[4], l[5]},
			{l[0], l[1], l[3], l[2], l[4], l[5]},
			{l[0], l[1], l[2], l[4], l[5]},
			{l[0], l[1], l[2], l[3], l[5]},
			{l[0], l[1], l[2], l[3], l[5], l[4]},
			{l[5]},
		} {
			c := newClaim(1, 10, nil)
			_, err := deliver(compose(wrong, func(*message.Message) error { ran++; return nil }), c, recs(3, ownKey)...)
			require.ErrorIs(t, err, context.Canceled, "the Router must not log each")
			require.Equal(t, 3, c.givenBack)
			require.Empty(t, c.outcomes)
		}
		require.Zero(t, ran)
		require.Equal(t, []string{"stack_order"}, b.reports.kinds())
	})

	bubble(t, "GivenBackIsNoErrorToTheRouter", func(t *testing.T) {
		b := newBench(t)
		c := newClaim(1, 10, nil)
		h := b.handler(t, func(*message.Message) error { return fault.RetryAfter(errBoom, time.Second) })
		time.AfterFunc(100*time.Millisecond, func() { c.end(0) })
		msg, err := deliver(h, c, recs(2, ownKey)...)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "2 of 2 records given back")
		<-msg.Nacked()
		again, err := h(msg)
		require.Nil(t, again)
		require.ErrorIs(t, err, context.Canceled, "a message that was given back is over")
	})

	bubble(t, "MessageWithoutItsRecordsIsAnError", func(t *testing.T) {
		b := newBench(t)
		c := newClaim(1, 10, nil)
		_, err := deliver(func(m *message.Message) ([]*message.Message, error) { return b.handler(t, nothing)(m.Copy()) }, c, rec(0, "k"))
		require.ErrorIs(t, err, record.ErrNoRecords)
		require.Empty(t, c.outcomes)
		c.end(0)
	})

	bubble(t, "BatchInAForeignRouterIsReportedOnce", func(t *testing.T) {
		b := newBench(t)
		b.rt.Batches = false
		c := b.run(t, nothing, recs(4, ownKey)...)
		c.add(rec(4, "a"), rec(5, "b"))
		c.idle()
		require.Equal(t, []string{"batch_without_payload"}, b.reports.kinds())
	})

	bubble(t, "NothingTakesTheProcessDown", func(t *testing.T) {
		for _, end := range []func(){func() { panic("boom") }, runtime.Goexit} {
			b := newBench(t)
			passes := 0
			b.rt.Inbox = effects(func(ctx context.Context, rs []*record.Record, work dedup.Work) {
				switch passes++; passes {
				case 1: // on the Router's goroutine
					end()
				case 2: // the same records again: one fails for its own reasons
					rs[0].Err = fault.RetryAfter(errBoom, time.Second)
					b.in.Run(ctx, rs[1:], work)
				case 3: // on a chain's goroutine
					end()
				default:
					b.in.Run(ctx, rs, work)
				}
			})
			c := b.run(t, nothing, recs(3, ownKey)...)
			for o := range int64(3) {
				require.Equal(t, record.Effected, c.outcome(o))
				require.Empty(t, b.topic.of(o), "a panic outside of a handler is nobody's verdict")
			}
		}
	})

	bubble(t, "LeftWithoutAnOutcomeIsGivenBackAndReported", func(t *testing.T) {
		b := newBench(t)
		calls := 0
		b.rt.Inbox = effects(func(context.Context, []*record.Record, dedup.Work) { calls++ })
		c := newClaim(1, 10, nil)
		h := b.handler(t, nothing)
		msg, err := deliver(h, c, recs(2, ownKey)...)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 2, c.givenBack)
		_, err = h(msg)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 1, calls, "a message that was given back is over, whoever calls again")
		require.Equal(t, []string{"left_unsettled"}, b.reports.kinds())
	})

	bubble(t, "WorkRunsWithoutAMessageAndKnowsItsRecord", func(t *testing.T) {
		b := newBench(t)
		var ran []int64
		b.rt.Work = dedup.Apply(func(ctx context.Context, _ pgx.Tx, r *record.Record) error {
			require.Same(t, r, record.Of(ctx))
			ran = append(ran, r.Offset)
			if r.Offset == 1 {
				return fault.Permanent(errBoom)
			}
			return nil
		})
		c := b.run(t, func(*message.Message) error { panic("the handler has no part in it") }, recs(3, ownKey)...)
		require.Equal(t, []int64{0, 1, 2}, ran)
		require.Equal(t, map[int64][]record.Outcome{
			0: {record.Effected}, 1: {record.Dead}, 2: {record.Effected},
		}, c.outcomes)
	})

	bubble(t, "ReturnedMessagesPointToTheOutbox", func(t *testing.T) {
		b := newBench(t)
		layers, err := middleware.Stack(b.rt)
		require.NoError(t, err)
		h := message.HandlerFunc(message.PassthroughHandler)
		for i := len(layers) - 1; i >= 0; i-- {
			h = layers[i](h)
		}
		c := b.claim(t, 1, 1, h)
		c.add(rec(0, "k"))
		c.idle()
		require.ErrorContains(t, b.topic.of(0)[0].Err, "outbox")
		require.Equal(t, dlq.Permanent, b.topic.of(0)[0].Reason)
	})
}

// effects makes a func an Effects.
type effects func(ctx context.Context, rs []*record.Record, work dedup.Work)

func (f effects) Run(ctx context.Context, rs []*record.Record, work dedup.Work) { f(ctx, rs, work) }

// TestStockMiddlewares: whatever stands around the stack, each record has one outcome and no Ack settles one.
func TestStockMiddlewares(t *testing.T) {
	t.Parallel()
	for name, around := range map[string]message.HandlerMiddleware{
		"Recoverer":    stock.Recoverer,
		"IgnoreErrors": stock.NewIgnoreErrors([]error{context.Canceled}).Middleware,
		"Retry":        stock.Retry{MaxRetries: 3, InitialInterval: time.Millisecond, Logger: watermill.NopLogger{}}.Middleware,
		"Timeout":      stock.Timeout(2 * time.Second),
		"InstantAck":   stock.InstantAck,
		"Correlation":  stock.CorrelationID,
		"swallow": func(next message.HandlerFunc) message.HandlerFunc {
			return func(m *message.Message) ([]*message.Message, error) { _, _ = next(m); return nil, nil }
		},
		"wrap": func(next message.HandlerFunc) message.HandlerFunc {
			return func(m *message.Message) ([]*message.Message, error) {
				if _, err := next(m); err != nil {
					return nil, errors.New("wrapped without a trace")
				}
				return nil, nil
			}
		},
		"twice": func(next message.HandlerFunc) message.HandlerFunc {
			return func(m *message.Message) ([]*message.Message, error) { _, _ = next(m); return next(m) }
		},
		"copy with its context": func(next message.HandlerFunc) message.HandlerFunc {
			return func(m *message.Message) ([]*message.Message, error) {
				c := m.Copy()
				c.SetContext(m.Context())
				_, _ = next(c)
				return nil, nil
			}
		},
	} {
		for _, calling := range []bool{false, true} {
			bubble(t, fmt.Sprintf("%s/calling=%t", name, calling), func(t *testing.T) { withinStock(t, around, calling) })
		}
	}
}

// withinStock revokes a claim in the middle of back-offs, and finishes its records in the next.
func withinStock(t *testing.T, around message.HandlerMiddleware, calling bool) {
	b := newBench(t)
	if calling {
		b.calls(t, callOf(50*time.Millisecond))
	}
	tries := map[int64]int{}
	h := b.handler(t, func(m *message.Message) error {
		switch o := offsetOf(m); {
		case o == 3:
			return errBoom
		case o%4 == 0 && tries[o] == 0:
			tries[o]++
			return fault.RetryAfter(errBoom, time.Second)
		}
		return nil
	}, around)
	c := newClaim(2, 1+len(t.Name())%3, b.rt.Gates)
	served := make(chan struct{})
	go func() { c.serve(h); close(served) }()
	c.add(recs(12, ownKey)...)
	elapse(500 * time.Millisecond)
	c.end(0) // in the middle of back-offs: given back, and swallowed by some
	<-served
	synctest.Wait()
	require.Zero(t, c.acked)

	next := b.claim(t, 2, 3, h)
	for o := range int64(12) {
		if c.outcome(o) == record.Unsettled {
			next.add(rec(o, ownKey(int(o))))
		}
	}
	next.idle()
	for o := range int64(12) {
		require.Len(t, append(c.outcomes[o], next.outcomes[o]...), 1)
		require.Equal(t, o != 3, b.in.effectsOf(o) == 1)
	}
	require.Len(t, b.topic.of(3), 1)
}

func TestDecode(t *testing.T) {
	t.Parallel()

	bubble(t, "OnceADeliveryHoweverOftenTheHandlerRuns", func(t *testing.T) {
		b := newBench(t)
		decoded := 0
		b.rt.Decode = func(r *record.Record) error { decoded++; r.Event = string(r.Value); return nil }
		c := b.run(t, func(m *message.Message) error {
			require.Equal(t, "0", record.Of(m.Context()).Event)
			return fault.Transient(errBoom)
		}, rec(0, "k"))
		require.Equal(t, record.Dead, c.outcome(0))
		require.Equal(t, 1, decoded)
	})

	for name, decode := range map[string]func(*record.Record) error{
		"Error":              func(*record.Record) error { return errors.New("unexpected EOF") },
		"Panic":              func(*record.Record) error { panic("index out of range") },
		"ErrorThatPanics":    func(*record.Record) error { var nothing *fault.PanicError; return nothing },
		"DeadlineLikeAnyErr": func(*record.Record) error { return context.DeadlineExceeded },
	} {
		bubble(t, "UndecodableIsDead/"+name, func(t *testing.T) {
			b := newBench(t)
			ran := 0
			b.rt.Decode = func(r *record.Record) error {
				if r.Offset != 499 {
					return decode(r)
				}
				return nil
			}
			b.topic.write = func(ctx context.Context, _ dlq.Letter) error { return sleep(ctx, 10*time.Millisecond) }
			c := b.run(t, func(*message.Message) error { ran++; return nil }, recs(500, oneKey)...)
			require.Less(t, b.at(499), 100*time.Millisecond, "side by side, although they share a key")
			for o := range int64(499) {
				require.Equal(t, record.Dead, c.outcome(o))
				require.Equal(t, dlq.Undecodable, b.topic.of(o)[0].Reason)
				require.Zero(t, b.topic.of(o)[0].Attempts)
			}
			require.Equal(t, record.Effected, c.outcome(499))
			require.Equal(t, 1, ran)
		})
	}

	bubble(t, "ResolverThatPanicsOnOneRecordStopsNobody", func(t *testing.T) {
		b := newBench(t)
		b.rt.Identity = []dedup.Resolver{func(r *record.Record) (string, bool, error) {
			if r.Offset == 3 {
				panic("index out of range")
			}
			return "", false, nil
		}}
		c := b.run(t, func(*message.Message) error { return nil }, recs(10, oneKey)...)
		require.Equal(t, dlq.Undecodable, b.topic.of(3)[0].Reason)
		require.Equal(t, record.Dead, c.outcome(3))
		for _, o := range []int64{0, 1, 2, 4, 9} {
			require.Equal(t, record.Effected, c.outcome(o))
		}
	})

	bubble(t, "UnreadableIdentityIsDeadUnderItsCoordinatesAndNeverRuns", func(t *testing.T) {
		b := newBench(t)
		b.rt.Identity = []dedup.Resolver{func(*record.Record) (string, bool, error) { return "", false, errBoom }}
		b.rt.Flood = middleware.NewFloodGuard(middleware.FloodConfig{Run: 1})
		ran := 0
		c := b.claim(t, 1, 10, b.handler(t, func(*message.Message) error { ran++; return nil }))
		c.add(recs(2, ownKey)...)
		elapse(5 * time.Minute) // the second is refused, and run again as a probe
		require.Len(t, c.outcomes, 1)
		require.Zero(t, ran)
		b.rt.Flood.Release(middleware.Partition{Topic: "orders"})
		c.idle()
		require.Zero(t, ran)
		for o := range int64(2) {
			require.True(t, b.topic.of(o)[0].Record.Identity.FromCoordinates)
		}
	})

	bubble(t, "SchemaRegistryAwayHoldsAndKillsNobody", func(t *testing.T) {
		b := newBench(t)
		b.rt.Decode = func(*record.Record) error {
			if time.Since(b.began) < time.Hour {
				return fault.Unavailable(errBoom, "schema-registry")
			}
			return nil
		}
		c := b.run(t, nothing, recs(3, oneKey)...)
		for o := range int64(3) {
			require.Equal(t, record.Effected, c.outcome(o))
		}
	})

	bubble(t, "NextBatchIsDecodedWhileTheLastOneCommits", func(t *testing.T) {
		b := newBench(t)
		next := make(chan struct{})
		b.rt.Decode = func(r *record.Record) error {
			if r.Offset == 2 {
				close(next)
			}
			return nil
		}
		b.rt.Inbox = effects(func(ctx context.Context, rs []*record.Record, work dedup.Work) {
			if rs[0].Offset == 0 {
				<-next
			}
			b.in.Run(ctx, rs, work)
		})
		c := b.claim(t, 2, 2, b.handler(t, nothing))
		c.add(recs(4, ownKey)...)
		c.idle()
		require.Len(t, c.outcomes, 4)
	})

	bubble(t, "SkippedByItsDecoderIsSkipped", func(t *testing.T) {
		b := newBench(t)
		b.rt.Decode = func(*record.Record) error { return fault.Skip("another type") }
		c := b.run(t, func(*message.Message) error { t.Error("it ran"); return nil }, rec(0, "k"))
		require.Equal(t, record.Skipped, c.outcome(0))
	})
}

package middleware_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

// bench is a route with fakes around it.
type bench struct {
	rt      *middleware.Route
	in      *fakeInbox
	topic   *fakeTopic
	reports *reports
	settled log[settlement]
	holds   log[record.HoldInfo]
	began   time.Time
}

type settlement struct {
	offset  int64
	outcome record.Outcome
	at      time.Duration
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{in: newInbox(1, 500), topic: newTopic(), reports: &reports{}, began: time.Now()}
	b.rt = &middleware.Route{
		Name: "ledger", Group: "billing", Inbox: b.in, Graves: b.in, DeadLetters: b.topic, Batches: true,
		Hooks: &record.Hooks{
			OnReport: b.reports.add,
			OnHold:   b.holds.add,
			OnSettle: func(i record.SettleInfo) { b.settled.add(settlement{i.Offset, i.Outcome, time.Since(b.began)}) },
		},
	}
	t.Cleanup(b.in.close)
	return b
}

// writers gives the route an inbox of n writers; one that hangs must not stop the others.
func (b *bench) writers(t *testing.T, n int) {
	t.Helper()
	b.in = newInbox(n, 500)
	b.rt.Inbox, b.rt.Graves = b.in, b.in
	t.Cleanup(b.in.close)
}

// handler composes the stack around h, and around the stack what stands before it in a Router.
func (b *bench) handler(t *testing.T, h message.NoPublishHandlerFunc, around ...message.HandlerMiddleware) message.HandlerFunc {
	t.Helper()
	layers, err := middleware.Stack(b.rt)
	require.NoError(t, err)
	return compose(append(around, layers...), h)
}

func compose(mws []message.HandlerMiddleware, h message.NoPublishHandlerFunc) message.HandlerFunc {
	handler := message.HandlerFunc(func(m *message.Message) ([]*message.Message, error) { return nil, h(m) })
	for i := len(mws) - 1; i >= 0; i-- {
		handler = mws[i](handler)
	}
	return handler
}

// claim makes a claim whose scheduler asks the route's gates, and serves it with h until the test ends.
func (b *bench) claim(t *testing.T, lanes, maxBatch int, h message.HandlerFunc) *claim {
	t.Helper()
	c := newClaim(lanes, maxBatch, b.rt.Gates)
	served := make(chan struct{})
	go func() {
		defer close(served)
		c.serve(h)
	}()
	t.Cleanup(func() {
		if !c.ending() {
			c.end(0)
		}
		<-served
		require.Zero(t, c.acked, "an Ack settled a record")
	})
	return c
}

// run serves rs with h in one claim until all are settled.
func (b *bench) run(t *testing.T, h message.NoPublishHandlerFunc, rs ...*record.Record) *claim {
	t.Helper()
	c := b.claim(t, 2, 500, b.handler(t, h))
	c.add(rs...)
	c.idle()
	return c
}

func (b *bench) at(offset int64) time.Duration {
	for _, s := range b.settled.get() {
		if s.offset == offset {
			return s.at
		}
	}
	return -1
}

// offsetOf is the offset of the record that a handler has.
func offsetOf(m *message.Message) int64 { return record.Of(m.Context()).Offset }

// recs makes n records from offset 0; key names the key of each.
func recs(n int, key func(i int) string) []*record.Record {
	rs := make([]*record.Record, n)
	for i := range rs {
		rs[i] = rec(int64(i), key(i))
	}
	return rs
}

func ownKey(i int) string { return "k" + strconv.Itoa(i) }
func oneKey(int) string   { return "k" }
func noKey(int) string    { return "" }

// bubble runs f as a parallel subtest in virtual time.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, f)
	})
}

var errBoom = errors.New("boom")

// sleep is what a handler does that takes d, or ends with its context.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

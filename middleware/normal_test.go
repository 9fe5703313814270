package middleware_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

// What an attempt takes is known, or measured: a budget that has less left is not spent on one that can only be the last.
func TestNormalTime(t *testing.T) {
	t.Parallel()
	held := func(b *bench) (n int) {
		for _, h := range b.holds.get() {
			if h.Dependency == middleware.NoBudget && h.Began {
				n++
			}
		}
		return n
	}

	bubble(t, "AShortBudgetBeginsAnewAndTheAttemptsDoNot", func(t *testing.T) {
		b := newBench(t)
		b.rt.Retry = middleware.Policy{Attempts: 5, Budget: 5 * time.Second, NormalTime: 2 * time.Second}
		var tries atomic.Int32
		slow := func(*message.Message) error {
			tries.Add(1)
			<-time.After(3500 * time.Millisecond)
			return fault.Transient(errBoom)
		}
		c := b.run(t, slow, rec(0, "k"))
		require.Equal(t, record.Dead, c.outcome(0), "attempts bound it")
		require.EqualValues(t, 5, tries.Load())
		require.Equal(t, 4, held(b), "each leaves 1.5s")
	})
	bubble(t, "WithoutOneTheBudgetIsTheEnd", func(t *testing.T) {
		b := newBench(t)
		b.rt.Retry = middleware.Policy{Attempts: 5, Budget: 5 * time.Second}
		var tries atomic.Int32
		b.run(t, func(*message.Message) error {
			tries.Add(1)
			<-time.After(3500 * time.Millisecond)
			return fault.Transient(errBoom)
		}, rec(0, "k"))
		require.EqualValues(t, 2, tries.Load())
		require.Zero(t, held(b))
	})
	for _, r := range []struct {
		name            string
		succeeded       int
		tries, withHold int32
	}{
		{"MeasuredItIsTheTimeOfThoseThatSucceed", 100, 5, 4},
		{"FewSayNothing", 99, 2, 0},
	} {
		bubble(t, r.name, func(t *testing.T) {
			b := newBench(t)
			b.rt.Retry = middleware.Policy{Attempts: 5, Budget: 5 * time.Second, NormalTime: downstream.Measured}
			var tries atomic.Int32
			c := b.run(t, func(m *message.Message) error {
				if offsetOf(m) < int64(r.succeeded) {
					<-time.After(2 * time.Second)
					return nil
				}
				tries.Add(1)
				<-time.After(3500 * time.Millisecond)
				return fault.Transient(errBoom)
			}, recs(r.succeeded, ownKey)...)
			// Soon after: what is older than a minute is forgotten.
			c.add(rec(int64(r.succeeded), "k"))
			c.idle()
			require.Equal(t, r.tries, tries.Load())
			require.EqualValues(t, r.withHold, held(b))
		})
	}
}

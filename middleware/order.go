package middleware

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/record"
)

// layer is a place in the stack.
type layer uint8

const (
	guardLayer layer = iota
	observeLayer
	retryLayer
	decodeLayer
	callLayer
	inboxLayer
)

var (
	order      = [...]layer{guardLayer, observeLayer, retryLayer, decodeLayer, callLayer, inboxLayer}
	layerNames = [...]string{"guard", "observe", "retry", "decode", "call", "inbox"}
)

func (l layer) String() string { return layerNames[l] }

// trail travels in a message's context from the guard inwards, and knows which layers it has passed. It is how each
// layer knows that the one outside of it is there: whoever wraps whom cannot be seen from a func.
type trail struct {
	passed atomic.Uint32 // a bit a layer
	// probe makes the layers write themselves down in seen and do nothing else.
	probe bool
	seen  []layer
}

type trailKey struct{}

// newTrail begins at the guard.
func newTrail() *trail {
	t := &trail{}
	t.passed.Store(1 << guardLayer)
	return t
}

func trailOf(msg *message.Message) *trail {
	t, _ := msg.Context().Value(trailKey{}).(*trail)
	return t
}

// enter marks l as passed and says whether the layer outside of it was.
func (t *trail) enter(l layer) bool {
	if l == guardLayer {
		return t == nil // it begins the trail
	}
	if t == nil || t.passed.Load()&(1<<(l-1)) == 0 {
		return false
	}
	t.passed.Or(1 << l)
	return true
}

// complete says whether a probe has met every layer, each once and in order.
func (t *trail) complete() bool {
	if len(t.seen) != len(order) {
		return false
	}
	for i, l := range t.seen {
		if l != order[i] {
			return false
		}
	}
	return true
}

// layer makes the middleware of l. wrap's handler is called for messages that came the right way only. A wrong way
// costs time and no data: what comes it is given back and reported.
func (rt *Route) layer(l layer, wrap func(next message.HandlerFunc) message.HandlerFunc) message.HandlerMiddleware {
	rt.prepare()
	return func(next message.HandlerFunc) message.HandlerFunc {
		inner := wrap(next)
		return func(msg *message.Message) ([]*message.Message, error) {
			t := trailOf(msg)
			switch {
			case t != nil && t.probe:
				t.seen = append(t.seen, l)
				return next(msg)
			case rt.invalid != nil || !t.enter(l):
				return nil, rt.misplaced(l, msg)
			}
			return inner(msg)
		}
	}
}

// misplaced gives the message's records back. It wraps context.Canceled, because the hook is who tells of it: the
// Router would log each message.
func (rt *Route) misplaced(l layer, msg *message.Message) error {
	err := rt.invalid
	if err == nil {
		err = fmt.Errorf("%w: %s is not where it belongs; want %s", ErrOrder, l, names(order[:]))
	}
	rt.orderOnce.Do(func() {
		rt.report(record.Report{Kind: record.ReportStackOrder, Err: err, Hint: "use what middleware.Stack returns, in its order"})
	})
	// With a guard outside it is the guard who gives back, when everybody is done with the records.
	if rs, recordsErr := record.Records(msg); recordsErr == nil && (l == guardLayer || trailOf(msg) == nil) {
		record.GiveBack(rs)
	}
	return fmt.Errorf("%w (%w)", err, context.Canceled)
}

func names(ls []layer) string {
	var b strings.Builder
	for i, l := range ls {
		if i > 0 {
			b.WriteString(" ► ")
		}
		b.WriteString(l.String())
	}
	return b.String()
}

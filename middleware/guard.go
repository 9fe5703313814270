package middleware

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// Guard is the outermost layer: whatever comes out of the layers beneath it, an error, a panic, runtime.Goexit or
// nothing at all, the records that have no outcome are given back, and no Ack of anybody can settle them any more.
func Guard(rt *Route) message.HandlerMiddleware {
	return rt.layer(guardLayer, func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			return nil, rt.guard(msg, next)
		}
	})
}

// givenBack is the error of a message whose records have not all an outcome. The verdicts stand on the records; this is
// a summary. It is a context.Canceled to errors.Is, so that Watermill's Router does not log what is no error.
type givenBack struct {
	left, all int
	cause     error
}

func (e *givenBack) Error() string {
	text := fmt.Sprintf("%d of %d records given back", e.left, e.all)
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

func (e *givenBack) Unwrap() error        { return e.cause }
func (e *givenBack) Is(target error) bool { return target == context.Canceled }

func (rt *Route) guard(msg *message.Message, next message.HandlerFunc) error {
	all, err := record.Records(msg)
	if err != nil {
		return err
	}
	// An outer middleware may call again (a stock Retry does). What was settled stays settled; what was given back is on
	// its way to somebody else already, and to run it beside them would help nobody.
	rs := record.Remaining(all)
	select {
	case <-msg.Nacked():
		return &givenBack{left: len(rs), all: len(all)}
	default:
	}
	if len(rs) == 0 {
		return nil
	}
	rt.sawBatch(rs)
	deepen(rs)
	for _, r := range rs {
		r.End() // what runs is an attempt, and the inbox says when it does
	}
	return rt.guarded(msg, rs, next)
}

func (rt *Route) guarded(msg *message.Message, rs []*record.Record, next message.HandlerFunc) (err error) {
	inner := record.Derive(msg, rs)
	inner.SetContext(context.WithValue(inner.Context(), trailKey{}, newTrail()))
	defer func() {
		// On runtime.Goexit there is nothing to recover and nothing to return: the Router's goroutine ends and neither
		// acks nor nacks. So the records are given back here and not by the Router's reaction to an error.
		if p := recover(); p != nil {
			err = rt.stray(rs[0], p)
		}
		err = rt.conclude(msg, rs, err)
	}()
	_, err = next(inner)
	return err
}

// conclude makes the message's end of what the records say. GiveBack comes before Nack and does not rely on it: with a
// middleware around that copied the message, or that swallows the error, the Router acks a message of one, and an Ack
// settles what is still the owner's to settle.
func (rt *Route) conclude(msg *message.Message, rs []*record.Record, err error) error {
	left := record.Remaining(rs)
	if len(left) == 0 {
		return nil
	}
	record.GiveBack(left)
	msg.Nack()
	return &givenBack{left: len(left), all: len(rs), cause: err}
}

// stray reports a panic that is no handler's: the inbox has recovered those. It is nobody's verdict.
func (rt *Route) stray(r *record.Record, p any) error {
	err := fmt.Errorf("outside of a handler: %w", fault.Recovered(p))
	rt.report(record.Report{
		Kind: record.ReportStrayPanic, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Err: rt.shown(r, err),
		Hint: "a middleware or a hook panicked; its records were given back",
	})
	return err
}

func (rt *Route) sawBatch(rs []*record.Record) {
	if len(rs) == 1 || rt.Batches {
		return
	}
	rt.batchOnce.Do(func() {
		rt.report(record.Report{
			Kind: record.ReportBatchWithoutPayload, Topic: rs[0].Topic, Partition: rs[0].Partition, Offset: rs[0].Offset,
			Hint: "a message of several records has no payload: middlewares before the stack see an empty message; " +
				"add them after it, or subscribe with MaxBatch 1, or set Route.Batches if they know",
		})
	})
}

package middleware

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// Observe is the layer that sees each record from the door to its outcome: one span a record, whose parent is the
// producer's if the record carries one, and Hooks.OnSettle. Without a tracer and that hook it costs nothing.
func Observe(rt *Route) message.HandlerMiddleware {
	return rt.layer(observeLayer, func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			if rt.Tracer == nil && rt.Hooks.OnSettle == nil {
				return next(msg)
			}
			rs, err := record.Records(msg)
			if err != nil {
				return nil, err
			}
			w := &watch{rt: rt, began: time.Now()}
			for _, r := range rs {
				w.begin(msg.Context(), r)
			}
			defer w.leave(rs)
			return next(msg)
		}
	})
}

// watch is the Watcher of one message's records.
type watch struct {
	rt    *Route
	began time.Time
}

var _ record.Watcher = (*watch)(nil)

func (w *watch) begin(ctx context.Context, r *record.Record) {
	r.Watch(w)
	if w.rt.Tracer != nil {
		r.Span = w.rt.start(ctx, r)
	}
}

// Settled is called by the goroutine that settled r, often an inbox's writer.
func (w *watch) Settled(r *record.Record, o record.Outcome) {
	if span := spanOf(r); span != nil {
		span.SetAttributes(attribute.String("headrace.outcome", o.String()), attribute.Int("headrace.attempts", r.Attempts))
		if o == record.Dead {
			span.SetStatus(codes.Error, o.String())
		}
		span.End()
	}
	if w.rt.Hooks.OnSettle != nil {
		info := record.SettleInfo{
			Route: w.rt.Name, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
			Outcome: o, Attempts: r.Attempts, Replay: r.Replay, Age: time.Since(w.began),
		}
		if t, ok := r.Parked.(*parking.Trial); ok {
			info.Unparked, info.Round = true, t.Round
		}
		w.rt.Hooks.OnSettle(info)
	}
}

// leave ends the spans of what is given back.
func (w *watch) leave(rs []*record.Record) {
	if w.rt.Tracer == nil {
		return
	}
	for _, r := range record.Remaining(rs) {
		if span := spanOf(r); span != nil {
			span.SetAttributes(attribute.String("headrace.outcome", "given_back"))
			span.End()
		}
	}
}

// start begins a record's span by OpenTelemetry's conventions for messaging.
func (rt *Route) start(ctx context.Context, r *record.Record) trace.Span {
	ctx = propagation.TraceContext{}.Extract(ctx, carrier{r})
	_, span := rt.Tracer.Start(ctx, "process "+r.Topic, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("messaging.system", "kafka"),
		attribute.String("messaging.operation.type", "process"),
		attribute.String("messaging.destination.name", r.Topic),
		attribute.Int("messaging.destination.partition.id", int(r.Partition)),
		attribute.Int64("messaging.kafka.offset", r.Offset),
		attribute.String("messaging.consumer.group.name", rt.Group),
		attribute.String("headrace.route", rt.Name),
	))
	return span
}

// Attempt begins the span of one attempt of r, a child of the record's, and puts it into the context that the attempt
// is to use. end must be called once, with what came of it. The inbox layer does so around each run of a handler.
func (rt *Route) Attempt(ctx context.Context, r *record.Record) (_ context.Context, end func(error)) {
	if rt.Tracer == nil {
		return ctx, func(error) {}
	}
	return rt.child(ctx, r, rt.Classifier.Classify, "attempt "+rt.Name)
}

// attemptCall is Attempt for the call of r: the span has the name that one outside of a route has.
func (rt *Route) attemptCall(ctx context.Context, r *record.Record) (_ context.Context, end func(error)) {
	if rt.Tracer == nil {
		return ctx, func(error) {}
	}
	name := rt.Call.Dependency.Name()
	return rt.child(ctx, r, rt.Classifier.ClassifyCall, "call "+name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("headrace.dependency", name)))
}

// child begins a span of an attempt under the record's, which says of a failure what it means, and nothing of its text:
// there may be a secret in it.
func (rt *Route) child(
	ctx context.Context, r *record.Record, classify func(context.Context, error) fault.Fault, name string, opts ...trace.SpanStartOption,
) (_ context.Context, end func(error)) {
	parent := spanOf(r)
	if parent == nil {
		return ctx, func(error) {}
	}
	opts = append(opts, trace.WithAttributes(attribute.Int("headrace.attempt", r.Attempt())))
	ctx, span := rt.Tracer.Start(trace.ContextWithSpan(ctx, parent), name, opts...)
	return ctx, func(err error) {
		if err != nil {
			f := classify(ctx, err)
			span.SetAttributes(meaning(f)...)
			span.SetStatus(codes.Error, f.Class.String())
		}
		span.End()
	}
}

func meaning(f fault.Fault) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("headrace.class", f.Class.String()), attribute.String("headrace.rule", f.Rule)}
}

// attemptAll is Attempt for all records of a group. end gives each record what the error says about it.
func (rt *Route) attemptAll(ctx context.Context, rs []*record.Record) (_ context.Context, end func(error)) {
	if rt.Tracer == nil {
		return ctx, func(error) {}
	}
	within, first := rt.Attempt(ctx, rs[0])
	ends := []func(error){first}
	span := trace.SpanFromContext(within)
	for _, r := range rs[1:] {
		other, end := rt.Attempt(ctx, r)
		ends = append(ends, end)
		if parent := spanOf(r); parent != nil {
			span.AddLink(trace.LinkFromContext(other))
		}
	}
	return within, func(err error) {
		named, some := fault.AsMembers(err)
		for i, end := range ends {
			if some {
				end(named[i])
			} else {
				end(err)
			}
		}
	}
}

// note writes a decision of the retry layer about the failure f into the record's span.
func note(r *record.Record, f fault.Fault, d Decision) {
	span := spanOf(r)
	if span == nil || !span.IsRecording() {
		return
	}
	span.AddEvent(d.Action.String(), trace.WithAttributes(append(meaning(f),
		attribute.String("headrace.wait", d.Wait.String()), attribute.String("headrace.dependency", d.Dependency),
		attribute.String("headrace.reason", string(d.Reason)),
	)...))
}

func spanOf(r *record.Record) trace.Span {
	span, _ := r.Span.(trace.Span)
	return span
}

// carrier reads a record's headers. It is never written to.
type carrier struct{ r *record.Record }

var _ propagation.TextMapCarrier = carrier{}

func (c carrier) Get(key string) string {
	v, _ := c.r.Header(key)
	return string(v)
}

func (c carrier) Set(string, string) {}

func (c carrier) Keys() []string {
	keys := make([]string, len(c.r.Headers))
	for i, h := range c.r.Headers {
		keys[i] = h.Key
	}
	return keys
}

package downstream

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/headrace/headrace/record"
)

// traced begins the span of a call outside of a route.
func (c *Call) traced(ctx context.Context) context.Context {
	if c.d.cfg.Tracer == nil {
		return ctx
	}
	ctx, c.span = c.d.cfg.Tracer.Start(ctx, "call "+c.d.cfg.Name,
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attribute.String("headrace.dependency", c.d.cfg.Name)))
	return ctx
}

// endSpan has the outcome as its status, and no error's text: there may be a secret in it.
func (c *Call) endSpan(outcome string) {
	if c.span == nil {
		return
	}
	c.span.SetAttributes(attribute.String("headrace.outcome", outcome))
	if outcome != record.CallSucceeded {
		c.span.SetStatus(codes.Error, outcome)
	}
	c.span.End()
}

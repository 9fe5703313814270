package middleware_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

func traced(b *bench) *tracetest.SpanRecorder {
	spans := tracetest.NewSpanRecorder()
	b.rt.Tracer = sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test")
	return spans
}

func attr(s sdk.ReadOnlySpan, key string) attribute.Value {
	for _, a := range s.Attributes() {
		if string(a.Key) == key {
			return a.Value
		}
	}
	return attribute.Value{}
}

func TestObserve(t *testing.T) {
	t.Parallel()

	bubble(t, "OneSpanARecordAndAChildAnAttempt", func(t *testing.T) {
		b := newBench(t)
		spans := traced(b)
		tries := 0
		r := rec(0, "k")
		r.Headers = []record.Header{{Key: "traceparent", Value: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")}}
		b.run(t, func(m *message.Message) error {
			require.True(t, trace.SpanContextFromContext(m.Context()).IsValid(), "a handler's own spans are children")
			if tries++; tries == 1 {
				return fault.Transient(errBoom)
			}
			return nil
		}, r)
		ended := spans.Ended()
		require.Len(t, ended, 3)
		first, second, whole := ended[0], ended[1], ended[2]
		require.Equal(t, "attempt ledger", first.Name())
		require.Equal(t, codes.Error, first.Status().Code)
		require.Equal(t, codes.Unset, second.Status().Code)
		require.Equal(t, int64(2), attr(second, "headrace.attempt").AsInt64())
		require.Equal(t, "process orders", whole.Name())
		require.Equal(t, "effected", attr(whole, "headrace.outcome").AsString())
		require.Equal(t, "0af7651916cd43dd8448eb211c80319c", whole.SpanContext().TraceID().String(), "the producer's trace")
		require.Equal(t, "b7ad6b7169203331", whole.Parent().SpanID().String())
		for _, attempt := range []sdk.ReadOnlySpan{first, second} {
			require.Equal(t, whole.SpanContext().SpanID(), attempt.Parent().SpanID())
		}
		require.Equal(t, "again", whole.Events()[0].Name)
	})

	bubble(t, "ACallIsAClientsSpanAndWhatItAsksElsewhereAChild", func(t *testing.T) {
		b := newBench(t)
		spans := traced(b)
		fraud, err := downstream.New(downstream.Config{Name: "fraud", Tracer: b.rt.Tracer})
		require.NoError(t, err)
		tries := 0
		b.calls(t, func(ctx context.Context, _ *record.Record) (any, error) {
			require.NoError(t, fraud.Do(ctx, func(context.Context) error { return nil }))
			if tries++; tries == 1 {
				return nil, fault.Transient(errBoom)
			}
			return "paid", nil
		})
		b.run(t, nothing, rec(0, "k"))
		ended := spans.Ended()
		var names []string
		for _, s := range ended {
			names = append(names, s.Name())
		}
		require.Equal(t, []string{"call fraud", "call payments", "call fraud", "call payments", "attempt ledger", "process orders"}, names)
		for i, want := range []struct {
			parent int
			kind   trace.SpanKind
			code   codes.Code
			number int64
		}{
			{1, trace.SpanKindClient, codes.Unset, 0},
			{5, trace.SpanKindClient, codes.Error, 1},
			{3, trace.SpanKindClient, codes.Unset, 0},
			{5, trace.SpanKindClient, codes.Unset, 1}, // what it is not charged for is no attempt of its own
			{5, trace.SpanKindInternal, codes.Unset, 1},
		} {
			require.Equal(t, ended[want.parent].SpanContext().SpanID(), ended[i].Parent().SpanID(), "%d: %s", i, names[i])
			require.Equal(t, want.kind, ended[i].SpanKind())
			require.Equal(t, want.code, ended[i].Status().Code)
			require.Equal(t, want.number, attr(ended[i], "headrace.attempt").AsInt64())
		}
		require.Equal(t, "payments", attr(ended[1], "headrace.dependency").AsString())
	})

	bubble(t, "ASecretInAnErrorIsInNoSpan", func(t *testing.T) {
		const secret = "token=s3cr3t"
		leaks := &url.Error{Op: "Get", URL: "http://payments/?" + secret, Err: errBoom}
		for name, set := range map[string]func(b *bench) (handler func(*message.Message) error){
			"InACall": func(b *bench) func(*message.Message) error {
				b.calls(t, func(context.Context, *record.Record) (any, error) { return nil, fault.Permanent(leaks) })
				return nothing
			},
			"InAHandler": func(*bench) func(*message.Message) error {
				return func(*message.Message) error { return fault.Permanent(leaks) }
			},
			"InAPanic": func(*bench) func(*message.Message) error { return func(*message.Message) error { panic(secret) } },
			"InWhatIsTriedAgain": func(*bench) func(*message.Message) error {
				return func(*message.Message) error { return fault.Transient(leaks) }
			},
		} {
			b := newBench(t)
			spans := traced(b)
			require.Equal(t, record.Dead, b.run(t, set(b), rec(0, "k")).outcome(0), name)
			ended := spans.Ended()
			for _, s := range ended {
				require.Equal(t, codes.Error, s.Status().Code, name)
				text := fmt.Sprint(s.Name(), s.Status(), s.Attributes(), s.Events())
				require.NotContains(t, text, secret, name)
			}
			whole := ended[len(ended)-1]
			events := whole.Events()
			last := attribute.NewSet(events[len(events)-1].Attributes...)
			for _, key := range []attribute.Key{"headrace.class", "headrace.rule", "headrace.reason"} {
				v, _ := last.Value(key)
				require.NotEmpty(t, v.AsString(), "%s: %s of the verdict", name, key)
			}
			require.NotEmpty(t, attr(ended[0], "headrace.class").AsString(), name)
			require.NotEmpty(t, attr(ended[0], "headrace.rule").AsString(), name)
		}
	})

	bubble(t, "PanicEndsItsSpanWithAnError", func(t *testing.T) {
		b := newBench(t)
		spans := traced(b)
		b.run(t, func(*message.Message) error { panic("boom") }, rec(0, "k"))
		require.Equal(t, codes.Error, spans.Ended()[0].Status().Code)
		require.Equal(t, "dead", attr(spans.Ended()[1], "headrace.outcome").AsString())
		require.Equal(t, codes.Error, spans.Ended()[1].Status().Code)
	})

	bubble(t, "GivenBackEndsTheSpan", func(t *testing.T) {
		b := newBench(t)
		spans := traced(b)
		c := b.claim(t, 1, 1, b.handler(t, func(*message.Message) error { return fault.RetryAfter(errBoom, time.Second) }))
		c.add(rec(0, "k"))
		elapse(100 * time.Millisecond)
		c.end(0)
		elapse(time.Second)
		require.Equal(t, "given_back", attr(spans.Ended()[1], "headrace.outcome").AsString())
	})

	bubble(t, "EachOutcomeIsToldOnce", func(t *testing.T) {
		b := newBench(t)
		b.run(t, func(m *message.Message) error {
			<-time.After(time.Second)
			if offsetOf(m) == 1 {
				return errBoom
			}
			return nil
		}, recs(2, ownKey)...)
		require.ElementsMatch(t, []settlement{
			{0, record.Effected, 2 * time.Second}, {1, record.Dead, 2 * time.Second},
		}, b.settled.get())
	})
}

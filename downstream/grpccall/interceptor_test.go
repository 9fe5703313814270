package grpccall_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/downstream/grpccall"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const method = "/grpc.health.v1.Health/Check"

// service is a real gRPC server that answers with one error after the other, and then with success.
type service struct {
	grpc_health_v1.UnimplementedHealthServer

	mu   sync.Mutex
	errs []error
	keys []string
}

func (s *service) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = append(s.keys, strings.Join(md.Get(grpccall.Key), ","))
	if len(s.errs) == 0 {
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
	}
	err := s.errs[0]
	s.errs = s.errs[1:]
	return nil, err
}

func (s *service) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys
}

// bed is a server, a dependency and a client of it.
type bed struct {
	*service

	d      *downstream.Dependency
	client grpc_health_v1.HealthClient
	server *grpc.Server
}

func newBed(t testing.TB, cfg grpccall.Config, errs ...error) *bed {
	t.Helper()
	return newTracedBed(t, nil, cfg, errs...)
}

func newTracedBed(t testing.TB, tracer trace.Tracer, cfg grpccall.Config, errs ...error) *bed {
	t.Helper()
	d, err := downstream.New(downstream.Config{
		Name: "health", Tracer: tracer, Breaker: downstream.BreakerConfig{MinRequests: 4},
		Retry: downstream.RetryConfig{Base: time.Millisecond, Cap: time.Millisecond},
	})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b := &bed{service: &service{errs: errs}, d: d, server: grpc.NewServer()}
	grpc_health_v1.RegisterHealthServer(b.server, b.service)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = b.server.Serve(l)
	}()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
		grpc.WithUnaryInterceptor(grpccall.UnaryClientInterceptor(d, cfg)))
	require.NoError(t, err)
	b.client = grpc_health_v1.NewHealthClient(conn)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		b.server.Stop()
		<-served
	})
	return b
}

func (b *bed) check(ctx context.Context, opts ...grpc.CallOption) error {
	_, err := b.client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "payments"}, opts...)
	return err
}

func lost() error { return status.Error(codes.Unavailable, "lost") }

var idempotent = grpccall.Config{Idempotent: func(m string) bool { return m == method }}

func TestUnaryClientInterceptor(t *testing.T) {
	t.Parallel()

	t.Run("WhatMayHaveBeenExecutedIsNotTriedAgain", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, grpccall.Config{}, lost())
		err := b.check(t.Context())
		require.Equal(t, codes.Unavailable, status.Code(err), "it is gRPC's status still")
		require.Equal(t, fault.ClassAmbiguous, new(fault.Classifier).ClassifyCall(t.Context(), err).Class)
		require.Equal(t, []string{""}, b.sent())
	})
	t.Run("AnIdempotentMethodIs", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, idempotent, lost(), lost())
		require.NoError(t, b.check(t.Context()))
		require.Len(t, b.sent(), 3)
	})
	t.Run("SoIsOneWithAKey", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, grpccall.Config{Keyed: true}, lost(), lost())
		require.NoError(t, b.check(t.Context()))
		keys := b.sent()
		require.Len(t, keys, 3)
		require.NotEmpty(t, keys[0])
		require.Equal(t, []string{keys[0], keys[0], keys[0]}, keys)
	})
	t.Run("AKeyOfTheCallersStays", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, grpccall.Config{Keyed: true}, lost())
		require.NoError(t, b.check(metadata.AppendToOutgoingContext(t.Context(), grpccall.Key, "k-7")))
		require.Equal(t, []string{"k-7", "k-7"}, b.sent())
	})
	t.Run("InARouteThereIsOneTryWithTheRecordsKey", func(t *testing.T) {
		t.Parallel()
		for _, cfg := range []grpccall.Config{{}, {Keyed: true}} {
			b := newBed(t, cfg, lost())
			ctx := downstream.WithPermit(t.Context(), downstream.Permit{Dependency: b.d, Group: "billing", Route: "charge", ID: uuid.Max})
			require.Error(t, b.check(ctx))
			require.NoError(t, b.check(ctx))
			key, _ := downstream.IdempotencyKey(ctx, method)
			require.Equal(t, []string{key, key}, b.sent())
		}
	})
	t.Run("AServerThatIsAwayWasSentNothing", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, grpccall.Config{})
		require.NoError(t, b.check(t.Context()))
		b.server.Stop()
		require.Eventually(t, func() bool {
			err := b.check(t.Context())
			return new(fault.Classifier).ClassifyCall(t.Context(), err).Class == fault.ClassTransient
		}, 10*time.Second, time.Millisecond, "once the connection is known to be gone")
	})
	t.Run("AnOutageOpensTheBreaker", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, grpccall.Config{}, lost(), lost(), lost(), lost())
		for range 4 {
			require.Error(t, b.check(t.Context()))
		}
		require.Equal(t, record.BreakerOpen, b.d.State())
		require.ErrorIs(t, b.check(t.Context()), fault.ErrBreakerOpen)
		require.Len(t, b.sent(), 4)
	})
	t.Run("WhatIsTooLargeWasNotSent", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, idempotent)
		err := b.check(t.Context(), grpc.MaxCallSendMsgSize(1))
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.Equal(t, fault.ClassPermanent, new(fault.Classifier).ClassifyCall(t.Context(), err).Class)
		require.Empty(t, b.sent())
	})
	t.Run("AnAnswerThatIsTooLargeWasExecuted", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, grpccall.Config{})
		err := b.check(t.Context(), grpc.MaxCallRecvMsgSize(1))
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.Equal(t, fault.ClassAmbiguous, new(fault.Classifier).ClassifyCall(t.Context(), err).Class)
		require.Len(t, b.sent(), 1)
	})
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	for code, want := range map[codes.Code]fault.Class{
		codes.Canceled: fault.ClassAmbiguous, codes.Unknown: fault.ClassAmbiguous, codes.InvalidArgument: fault.ClassPermanent,
		codes.DeadlineExceeded: fault.ClassAmbiguous, codes.NotFound: fault.ClassPermanent, codes.AlreadyExists: fault.ClassPermanent,
		codes.PermissionDenied: fault.ClassPermanent, codes.ResourceExhausted: fault.ClassAmbiguous,
		codes.FailedPrecondition: fault.ClassPermanent, codes.Aborted: fault.ClassTransient, codes.OutOfRange: fault.ClassPermanent,
		codes.Unimplemented: fault.ClassPermanent, codes.Internal: fault.ClassAmbiguous, codes.Unavailable: fault.ClassAmbiguous,
		codes.DataLoss: fault.ClassAmbiguous, codes.Unauthenticated: fault.ClassUnavailable,
	} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, grpccall.Config{}, status.Error(code, "so it is"))
			ctx := downstream.WithPermit(t.Context(), downstream.Permit{Dependency: b.d}) // one try
			err := b.check(ctx)
			require.Equal(t, code, status.Code(err))
			require.Equal(t, want, new(fault.Classifier).ClassifyCall(t.Context(), err).Class)
		})
	}
	t.Run("WithADelay", func(t *testing.T) {
		t.Parallel()
		s, err := status.New(codes.ResourceExhausted, "later").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(7 * time.Second)})
		require.NoError(t, err)
		b := newBed(t, grpccall.Config{}, s.Err())
		err = b.check(downstream.WithPermit(t.Context(), downstream.Permit{Dependency: b.d}))
		f := new(fault.Classifier).ClassifyCall(t.Context(), err)
		require.Equal(t, fault.ClassTransient, f.Class)
		require.Equal(t, 7*time.Second, f.RetryAfter)
	})
}

func ExampleUnaryClientInterceptor() {
	payments, err := downstream.New(downstream.Config{Name: "payments"})
	if err != nil {
		fmt.Println(err)
		return
	}
	conn, err := grpc.NewClient("127.0.0.1:1", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
		grpc.WithUnaryInterceptor(grpccall.UnaryClientInterceptor(payments, grpccall.Config{Keyed: true})))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close() //nolint:errcheck // nothing is in flight
	_, err = grpc_health_v1.NewHealthClient(conn).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
	fmt.Println(status.Code(err), "is", new(fault.Classifier).ClassifyCall(context.Background(), err).Class)
	// Output: Unavailable is transient
}

// spans counts what a tracer is asked for, without an SDK.
type spans struct {
	noop.Tracer

	mu     sync.Mutex
	names  []string
	events []string
	ended  int
}

func (s *spans) Start(ctx context.Context, name string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, name)
	one := &span{all: s}
	return trace.ContextWithSpan(ctx, one), one
}

type span struct {
	noop.Span

	all *spans
}

func (s *span) AddEvent(name string, _ ...trace.EventOption) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.all.events = append(s.all.events, name)
}

func (s *span) End(...trace.SpanEndOption) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.all.ended++
}

// A call is one span, however often it was tried; in a route the attempt has it.
func TestSpans(t *testing.T) {
	t.Parallel()
	tracer := new(spans)
	b := newTracedBed(t, tracer, idempotent, lost(), lost())
	require.NoError(t, b.check(t.Context()))
	require.Len(t, b.sent(), 3)
	require.NoError(t, b.check(downstream.WithPermit(t.Context(), downstream.Permit{Dependency: b.d})))
	require.Equal(t, []string{"call health"}, tracer.names)
	require.Equal(t, []string{"retry", "retry"}, tracer.events)
	require.Equal(t, 1, tracer.ended)
}

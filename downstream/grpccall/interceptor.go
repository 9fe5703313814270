package grpccall

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/headrace/headrace/downstream"
)

// Key is the metadata that carries the idempotency key.
const Key = "idempotency-key"

// Config says which calls may be repeated when their outcome is unknown. The zero value allows none, outside of a route.
type Config struct {
	// Keyed says that the service carries out each idempotency key once, which every call has then: on behalf of a record
	// downstream.IdempotencyKey of the method, elsewhere one of the call. What has one in its outgoing metadata keeps it.
	//
	// Defaults to false: on behalf of a record the key is sent all the same, and promises nothing.
	Keyed bool
	// Idempotent says of a method ("/payments.v1.Payments/Get") that it changes nothing, or the same when it is done twice.
	//
	// Defaults to none.
	Idempotent func(method string) bool
}

// UnaryClientInterceptor makes each call one to d, by downstream.Run: outside of a route it is tried again as d's
// Config.Retry says, in one it is one try and the route tries again. Its errors are gRPC's statuses, wrapped in what they
// mean for a record; a *fault.RefusedError has the status UNKNOWN. It is safe for concurrent use.
func UnaryClientInterceptor(d *downstream.Dependency, cfg Config) grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		own := hasKey(ctx)
		_, err := downstream.Run(ctx, d, downstream.Operation[struct{}]{
			Name: method, Keyed: cfg.Keyed && !own,
			Idempotent: own && cfg.Keyed || cfg.Idempotent != nil && cfg.Idempotent(method),
			Do: func(ctx context.Context, t downstream.Try) (struct{}, error) {
				var to peer.Peer
				ctx = withKey(ctx, own, method, t.Key)
				err := invoke(ctx, method, req, reply, conn, append(opts[:len(opts):len(opts)], grpc.Peer(&to))...)
				return struct{}{}, explain(err, to.Addr != nil)
			},
		})
		return err
	}
}

func hasKey(ctx context.Context) bool {
	md, _ := metadata.FromOutgoingContext(ctx)
	return len(md.Get(Key)) > 0
}

// withKey adds the call's key, or the record's.
func withKey(ctx context.Context, own bool, method, key string) context.Context {
	if own {
		return ctx
	}
	if key == "" {
		key, _ = downstream.IdempotencyKey(ctx, method)
	}
	if key == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, Key, key)
}

// Package grpccall makes the unary calls of a grpc.ClientConn calls to a downstream.Dependency: behind its breaker, in one
// of its places, with the record's idempotency key, tried again where that is right, and with errors that say what they
// mean for a record. It is a module of its own, so that gRPC is no dependency of whoever does not use it.
//
//	payments, err := downstream.New(downstream.Config{Name: "payments"})
//	…
//	conn, err := grpc.NewClient(target,
//		grpc.WithUnaryInterceptor(grpccall.UnaryClientInterceptor(payments, grpccall.Config{Keyed: true})),
//		grpc.WithDisableRetry(), // one place tries again
//		…
//	)
//
// # What a status means
//
//	no connection was had                                        transient: surely not sent
//	ABORTED; RESOURCE_EXHAUSTED with a google.rpc.RetryInfo      transient: not now
//	UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED (by the server),   ambiguous: it may have been executed
//	UNKNOWN, INTERNAL, DATA_LOSS, RESOURCE_EXHAUSTED
//	UNAUTHENTICATED                                              unavailable: our credentials, not the record
//	the rest                                                     permanent: an answer
//
// The delay of a google.rpc.RetryInfo is a floor for the next wait, as Retry-After is over HTTP. gRPC's own retries hide
// tries that may have been executed: switch them off, as above.
//
// Deadlines travel by themselves. Streams are left alone: their end is not known here.
package grpccall

package downstream

import (
	"context"
	"crypto/sha1" //nolint:gosec // of a version 5 UUID
	"encoding/binary"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/headrace/headrace/fault"
)

// Permit says on whose behalf calls are made under a context: the layer that calls for a record has taken the breaker's
// leave and a place already, so that Do and Transport make one try and count nothing again.
type Permit struct {
	Dependency *Dependency
	// Scope is of the idempotency keys: consumer group and route.
	Group, Route string
	// ID is the record's identity as the inbox stores it: the same on every attempt, redelivery and replay.
	ID uuid.UUID
	// NoFallback forbids substitutes for what is read: see [Fallback].
	NoFallback bool
}

type (
	permitKey    struct{}
	operationKey struct{}
	countedKey   struct{}
)

// WithPermit is for the layer that calls on behalf of a record.
func WithPermit(ctx context.Context, p Permit) context.Context {
	return context.WithValue(ctx, permitKey{}, &permit{Permit: p})
}

// permit knows what was done with it: whether anybody has sent its key, and the failure that a substitute was given for.
type permit struct {
	Permit
	keyed    atomic.Bool
	degraded atomic.Pointer[degradedBy]
}

// degradedBy is a failure and what it means.
type degradedBy struct {
	fault fault.Fault
	err   error
}

func permitOf(ctx context.Context) *permit {
	p, _ := ctx.Value(permitKey{}).(*permit)
	return p
}

// PermitFrom gives the permit of the record on whose behalf ctx is.
func PermitFrom(ctx context.Context) (Permit, bool) {
	if p := permitOf(ctx); p != nil {
		return p.Permit, true
	}
	return Permit{}, false
}

// KeyTaken says whether anybody under ctx, a context of WithPermit, has asked for an idempotency key: IdempotencyKey's
// caller, or Transport.
func KeyTaken(ctx context.Context) bool {
	p := permitOf(ctx)
	return p != nil && p.keyed.Load()
}

// DegradedBy is the failure of the dependency for which a [Fallback] under ctx, a context of WithPermit, gave a substitute:
// the call as a whole says that the dependency is down, although its handler succeeds.
func DegradedBy(ctx context.Context) (fault.Fault, bool) {
	if p := permitOf(ctx); p != nil {
		if f := p.degraded.Load(); f != nil {
			return f.fault, true
		}
	}
	return fault.Fault{}, false
}

// WhyDegraded is the error of the failure that DegradedBy gives the meaning of; nil if there is none.
func WhyDegraded(ctx context.Context) error {
	if p := permitOf(ctx); p != nil {
		if f := p.degraded.Load(); f != nil {
			return f.err
		}
	}
	return nil
}

// takesKey is told of who cares for the key of the record on whose behalf ctx is.
func takesKey(ctx context.Context) {
	if p := permitOf(ctx); p != nil {
		p.keyed.Store(true)
	}
}

// counted says that somebody around ctx has begun the call with d already: a route, or Do.
func (d *Dependency) counted(ctx context.Context) bool {
	if by, ok := ctx.Value(countedKey{}).(*Dependency); ok && by == d {
		return true
	}
	p, ok := PermitFrom(ctx)
	return ok && p.Dependency == d
}

// WithOperation names what is asked of the dependency under ctx, for the idempotency key of Transport's requests. Name
// the operations of a handler that sends more than one request of a method to a path: one key is one execution.
func WithOperation(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, operationKey{}, name)
}

// keySpace is the namespace of our version 5 UUIDs. It is for ever: another one gives every call in flight another key.
var keySpace = uuid.MustParse("0b1b9d4e-6c0f-5f6e-9a57-3f6f2c7a9d31")

// IdempotencyKey is the key of operation for the record on whose behalf ctx is: the same on every attempt, redelivery
// and replay, another for every other record, operation, route and consumer group. It is false outside of a route.
//
// Under one key the request must always be the same: derive it from the record, not from the time or from a database
// that has moved on. A dependency that checks answers 422 otherwise.
func IdempotencyKey(ctx context.Context, operation string) (string, bool) {
	p, ok := PermitFrom(ctx)
	if !ok {
		return "", false
	}
	takesKey(ctx)
	// Each part with its length before it: "a", "bc" must not be "ab", "c".
	name := append(make([]byte, 0, 256), keySpace[:]...)
	for _, part := range [...]string{p.Group, p.Route, string(p.ID[:]), operation} {
		name = binary.AppendUvarint(name, uint64(len(part)))
		name = append(name, part...)
	}
	return version5(name).String(), true
}

// version5 is uuid.NewSHA1 of a namespace with a name behind it, without its five allocations.
func version5(name []byte) (id uuid.UUID) {
	sum := sha1.Sum(name) //nolint:gosec // RFC 9562 has it so
	copy(id[:], sum[:])
	id[6] = id[6]&0x0f | 0x50
	id[8] = id[8]&0x3f | 0x80
	return id
}

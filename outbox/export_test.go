package outbox

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// Unfence has f believe that it is always its turn.
func Unfence(f *Forwarder) { f.lease.turns = everybodys{} }

type everybodys struct{}

func (everybodys) takeLease(context.Context, uuid.UUID, time.Duration) (bool, error) {
	return true, nil
}
func (everybodys) leaveLease(context.Context, uuid.UUID) error { return nil }

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

// Statements are what is explained.
func Statements() map[string]string {
	return map[string]string{"read": readSQL, "around": readAroundSQL, "delete": deleteSQL, "size": sizeSQL, "split": splitSQL, "topics": topicsSQL}
}

// SizePages is what a look at the size reads at most.
const SizePages = sizePages

package outbox

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/headrace/headrace/internal/backoff"
)

// lease keeps a forwarder's turn while it lives. It is no lock: a process that stops for long goes on sending beside its
// successor until it notices, and nothing depends on that.
type lease struct {
	turns turns
	me    uuid.UUID
	d     time.Duration
	taken func() // was not ours a moment ago
	held  atomic.Bool
	// others: another forwarder had it when the database was asked last.
	others atomic.Bool
	asked  pulse // of the database, whose turn it is
}

// turns is who knows whose turn it is.
type turns interface {
	takeLease(ctx context.Context, me uuid.UUID, d time.Duration) (bool, error)
	leaveLease(ctx context.Context, me uuid.UUID) error
}

var _ turns = table{}

// keep takes the lease, and takes it again before it expires, until ctx ends.
func (l *lease) keep(ctx context.Context) {
	for ctx.Err() == nil {
		ok := l.take(ctx)
		if had := l.held.Swap(ok); ok && !had {
			l.taken()
		}
		backoff.Wait(ctx, l.d/3)
	}
}

func (l *lease) take(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, l.d/3)
	defer cancel()
	ok, err := l.turns.takeLease(ctx, l.me, l.d)
	if l.asked.note(err); err == nil {
		l.others.Store(!ok)
	}
	return ok && err == nil
}

// leave lets another one go on at once.
func (l *lease) leave(ctx context.Context) {
	if l.held.Swap(false) {
		_ = l.turns.leaveLease(ctx, l.me) // else it expires
	}
}

package downstream

import (
	"context"
	"time"
)

type sharesKey struct{}

// shares are what the calls under a context may take.
type shares struct {
	most    map[*Dependency]time.Duration
	reserve time.Duration
	until   time.Time // the end of the context but for the reserve; zero without a deadline
}

// WithShares bounds the calls that are made under a context: each [Dependency.Do] and [Run] of one of most, and each try of
// a Transport's request with its answer's body, gets that much time, and none gets anything of the reserve at the end of
// ctx's deadline. One for which nothing else is left is not begun: its error is a *NoTimeError. Calls to others have all
// that ctx has. A consumer.CallRoute does so with the calls that it declares. most must not be changed any more.
func WithShares(ctx context.Context, most map[*Dependency]time.Duration, reserve time.Duration) context.Context {
	s := &shares{most: most, reserve: max(reserve, 0)}
	if at, bounded := ctx.Deadline(); bounded {
		s.until = at.Add(-s.reserve)
	}
	return context.WithValue(ctx, sharesKey{}, s)
}

// share is what a call to d under ctx may take, 0 if nobody says. The reserve is at the end of the context that was shared
// out, so a call within a call pays it once.
func (d *Dependency) share(ctx context.Context) (time.Duration, error) {
	s, _ := ctx.Value(sharesKey{}).(*shares)
	if s == nil {
		return 0, nil
	}
	most := s.most[d]
	if most <= 0 || s.until.IsZero() {
		return most, nil
	}
	left := time.Until(s.until)
	if left <= 0 {
		return 0, &NoTimeError{Left: max(left+s.reserve, 0), Reserve: s.reserve}
	}
	return min(most, left), nil
}

// shared is ctx with the deadline of a call to d.
func (d *Dependency) shared(ctx context.Context) (context.Context, context.CancelFunc, error) {
	share, err := d.share(ctx)
	if err != nil {
		if !d.counted(ctx) {
			d.refused("", err)
		}
		return nil, nil, err
	}
	child, cancel := deadline(ctx, share)
	return child, cancel, nil
}

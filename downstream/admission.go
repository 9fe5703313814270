package downstream

import (
	"context"
	"time"
)

// Measured is Config.NormalTime by measurement.
const Measured = time.Duration(-1)

// admit refuses a call that has less time than its normal path takes: begun, it could only be cut short, and nobody would
// know whether it was carried out.
func (d *Dependency) admit(ctx context.Context) error {
	if d.cfg.NormalTime == 0 {
		return nil
	}
	at, bounded := ctx.Deadline()
	if !bounded {
		return nil
	}
	if left, normal := time.Until(at), d.normal(); left < normal {
		return &NoTimeError{Left: max(left, 0), Needs: normal}
	}
	return nil
}

func (d *Dependency) normal() time.Duration {
	if d.cfg.NormalTime != Measured {
		return d.cfg.NormalTime
	}
	d.breaker.mu.Lock()
	defer d.breaker.mu.Unlock()
	return min(d.breaker.took.P99(time.Now()), d.cfg.Timeout)
}

package idempotency

import (
	"context"
	"time"
)

// sweepStep bounds a sweep's transaction.
const sweepStep = 1000

// Run sweeps what is past its retention and tells Hooks.OnStats of the rest, each SweepEvery, until ctx ends; then it returns
// nil. Several processes may: what one sweeps the others pass over. What goes wrong is logged, and tried again.
func (k *Keys) Run(ctx context.Context) error {
	ticker := time.NewTicker(k.cfg.SweepEvery)
	defer ticker.Stop()
	for {
		if _, err := k.Sweep(ctx); err != nil && ctx.Err() == nil {
			k.cfg.Logger.WarnContext(ctx, "idempotency: what is past its retention was not swept", "error", k.redacted(err))
		}
		if err := k.tellStats(ctx); err != nil && ctx.Err() == nil {
			k.cfg.Logger.WarnContext(ctx, "idempotency: the metrics of unfinished keys are old", "error", k.redacted(err))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (k *Keys) tellStats(ctx context.Context) error {
	if k.cfg.Hooks.OnStats == nil {
		return nil
	}
	stats, err := k.Stats(ctx)
	if err != nil {
		return err
	}
	k.cfg.Hooks.OnStats(stats)
	return nil
}

// Sweep deletes the finished keys that are past their retention, and says how many they were. What is in progress or
// unknown stays.
func (k *Keys) Sweep(ctx context.Context) (swept int64, err error) {
	defer func() { k.cfg.Hooks.sweep(swept) }()
	var floor *time.Time
	for {
		var step int64
		err := k.pool.QueryRow(ctx, k.sql.sweep, k.cfg.Retention, sweepStep, floor).Scan(&step, &floor)
		swept += step
		if err != nil || step < sweepStep {
			return swept, err
		}
	}
}

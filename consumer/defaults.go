package consumer

import (
	"log/slog"
	"time"

	"github.com/headrace/headrace/record"
)

// The defaults table, once. Every field of Config and Options that has one names it in its comment.
const (
	defaultAttempts          = 3
	defaultAttemptTimeout    = 5 * time.Second
	defaultCallTimeout       = 10 * time.Second
	defaultBackoffBase       = 200 * time.Millisecond
	defaultBackoffCap        = 10 * time.Second
	defaultDeadLetterTimeout = 10 * time.Second
	defaultCommitReserve     = 5 * time.Second
	defaultMaxHold           = 15 * time.Minute

	defaultMaxPollInterval   = 5 * time.Minute
	defaultRebalanceTimeout  = time.Minute
	defaultSessionTimeout    = 45 * time.Second
	defaultHeartbeatInterval = time.Second
	defaultDrainGrace        = 10 * time.Second
	defaultHardGrace         = 5 * time.Second
	defaultCommitInterval    = time.Second

	defaultMaxBatch = 500
	// defaultLargeBatch is of routes whose groups are one trip or a few, however large: measured, 2,000 records a group give
	// them 1.3 to 2 times the rate of 500. A route that executes a statement a record gains nothing, and waits longer for
	// each COMMIT.
	defaultLargeBatch       = 2000
	defaultMaxBatchTime     = 200 * time.Millisecond
	defaultLanes            = 2
	defaultWriters          = 4
	defaultMaxInFlightBytes = 32 << 20

	// rebalanceReserve is for the round trips of joining.
	rebalanceReserve = time.Second
	// retentionSlack is how much longer than a topic keeps its records the inbox keeps their rows, when it is left to
	// us: brokers delete whole segments, so a record can outlive its retention.
	retentionSlack = 24 * time.Hour
)

// orElse is value, or what stands for its zero.
func orElse[T comparable](value, standard T) T {
	var zero T
	if value == zero {
		return standard
	}
	return value
}

// withDefaults copies.
func (c Config) withDefaults() Config {
	c.Logger = orElse(c.Logger, slog.Default())
	c.Hooks = orElse(c.Hooks, &record.Hooks{})
	c.CommitReserve = orElse(c.CommitReserve, defaultCommitReserve)
	c.DeadLetterTimeout = orElse(c.DeadLetterTimeout, defaultDeadLetterTimeout)
	c.MaxHold = orElse(c.MaxHold, defaultMaxHold)
	c.MaxPollInterval = orElse(c.MaxPollInterval, defaultMaxPollInterval)
	c.RebalanceTimeout = orElse(c.RebalanceTimeout, defaultRebalanceTimeout)
	c.SessionTimeout = orElse(c.SessionTimeout, defaultSessionTimeout)
	c.HeartbeatInterval = orElse(c.HeartbeatInterval, defaultHeartbeatInterval)
	c.DrainGrace = orElse(c.DrainGrace, defaultDrainGrace)
	c.HardGrace = orElse(c.HardGrace, defaultHardGrace)
	c.CommitInterval = orElse(c.CommitInterval, defaultCommitInterval)
	c.MaxBatchTime = orElse(c.MaxBatchTime, defaultMaxBatchTime)
	c.Writers = orElse(c.Writers, defaultWriters)
	c.MaxInFlightBytes = orElse(c.MaxInFlightBytes, defaultMaxInFlightBytes)
	if c.Transport == nil {
		c.Transport = source
	}
	return c
}

// withDefaults copies. maxBatch is the kind of route's.
func (o Options) withDefaults(maxBatch int) Options {
	o.Attempts = orElse(o.Attempts, defaultAttempts)
	o.AttemptTimeout = orElse(o.AttemptTimeout, defaultAttemptTimeout)
	o.BackoffBase = orElse(o.BackoffBase, defaultBackoffBase)
	o.BackoffCap = orElse(o.BackoffCap, defaultBackoffCap)
	o.MaxBatch = orElse(o.MaxBatch, maxBatch)
	o.Lanes = orElse(o.Lanes, defaultLanes)
	return o
}

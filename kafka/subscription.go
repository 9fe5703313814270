package kafka

import (
	"context"
	"time"

	"github.com/headrace/headrace/kafka/internal/claim"
	"github.com/headrace/headrace/kafka/internal/route"
	"github.com/headrace/headrace/record"
)

// Order is what of a partition stays in order.
type Order uint8

const (
	// ByKey runs records of one key one after the other. Records without a key depend on no other.
	ByKey Order = iota
	// ByPartition runs all records of a partition one after the other.
	ByPartition
	// Unordered runs them side by side.
	Unordered
)

// Gate can keep a subscription's records from beginning, for example while something that they need is down.
type Gate interface {
	// Shut says whether nothing may begin. It must not block.
	Shut() bool
	// Watch calls f whenever Shut may have changed, until stop is called. f does not block.
	Watch(f func()) (stop func())
}

// Subscription is how one route wants its records. The zero value is usable.
type Subscription struct {
	// Name tells the subscriptions of one topic apart. A subscription that ended leaves its unsettled records to the
	// next of its name; until there is one, they hold the offset.
	//
	// Defaults to "".
	Name string
	// Order is what of a partition stays in order.
	//
	// Defaults to ByKey.
	Order Order
	// MaxBatch is how many records a message may carry. Only a handler that knows of record.Records may see more than
	// one.
	//
	// Defaults to 1.
	MaxBatch int
	// Lanes is how many messages of a partition run side by side. Records that run again, after a back-off, a hold or a call
	// that took long, take none: they have room of their own, for as many as Lanes messages carry.
	//
	// Defaults to 2.
	Lanes int
	// Gates must all be open for anything to begin.
	//
	// Defaults to none.
	Gates []Gate
	// Replay marks the records as read from the consumer group's replay topic (record.Record.Replay): what a header of
	// theirs says about the dead letter that they were is believed.
	//
	// Defaults to false.
	Replay bool
	// AttemptTimeout is how long one attempt takes at most. One that runs for HardGrace longer is reported.
	//
	// Defaults to MaxPollInterval, which is to say that nothing is reported before.
	AttemptTimeout time.Duration
	// Started is called once for each claim and subscription, before the first message is sent: first is the record at
	// which the claim begins, and no record of it has been handed out yet. Of a subscription that takes over within a claim
	// it is the first one that it gets; the one before may have left some that come earlier. It may block; ctx ends after
	// 5 s, and when the claim begins to end.
	//
	// What it returns, if not nil, is called when the claim begins to end in order (revoked, stopping), and has 100 ms;
	// not when the claim is lost.
	//
	// Defaults to nil.
	Started func(ctx context.Context, first *record.Record) (ended func(ctx context.Context))
}

func (s Subscription) withDefaults(c SourceConfig) Subscription {
	if s.MaxBatch <= 0 {
		s.MaxBatch = 1
	}
	if s.Lanes <= 0 {
		s.Lanes = 2
	}
	if s.AttemptTimeout <= 0 {
		s.AttemptTimeout = c.MaxPollInterval
	}
	return s
}

func (s Subscription) route(c SourceConfig) route.Config {
	cfg := route.Config{
		Line: claim.LineConfig{
			Name: s.Name, Order: claim.Order(s.Order), MaxBatch: s.MaxBatch, Lanes: s.Lanes, Replay: s.Replay,
			Patience: min(s.AttemptTimeout+c.HardGrace, c.MaxPollInterval),
		},
		Started: s.Started, DrainGrace: c.DrainGrace, HardGrace: c.HardGrace, Report: c.Hooks.Report,
	}
	for _, g := range s.Gates {
		cfg.Gates = append(cfg.Gates, g)
	}
	return cfg
}

package consumer

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/outbox"
	"github.com/headrace/headrace/record"
)

// ErrStarted reports a second Run of one Consumer. Match with errors.Is.
var ErrStarted = errors.New("a consumer runs once: make another with New")

// Consumer is the assembled thing: routes under one member of a consumer group. It is safe for concurrent use. Nothing
// is open before Run and after it, so there is nothing to close.
type Consumer struct {
	cfg     Config
	specs   []spec
	plan    Plan
	metrics *metrics
	log     *eventLog
	hooks   *record.Hooks
	replays *notTaken
	// forwarder is nil without Config.Outbox.
	forwarder *outbox.Forwarder

	ran    atomic.Bool
	engine atomic.Pointer[engine] // nil before Run has opened everything
}

// New checks everything that cfg and the routes alone show, and proves the plan: that the attempts, back-offs and
// writes of a record fit into MaxPollInterval and a rebalance into RebalanceTimeout. It speaks to nobody. What is wrong
// comes all at once, in a *StartError; what broker and database have to say to it comes from [Consumer.Check] and
// [Consumer.Run].
func New(cfg Config, routes ...AnyRoute) (*Consumer, error) {
	cfg = cfg.withDefaults()
	specs, problems := specsOf(cfg.Group, routes)
	if err := refuse(append(problems, validate(cfg, specs)...)); err != nil {
		return nil, err
	}
	if cfg.Registry == nil {
		cfg.Registry = prometheus.NewRegistry()
	}
	c := &Consumer{cfg: cfg, specs: specs, plan: plan(cfg, specs), metrics: newMetrics(specs, cfg.Dependencies...), replays: newNotTaken(specs)}
	if err := errors.Join(cfg.Registry.Register(c.metrics), cfg.Registry.Register(newPartitions(c.stats))); err != nil {
		return nil, refuse([]Problem{{
			What: "the metrics cannot be registered", Err: err, Fix: "give each consumer of a process a Registry of its own, or leave it nil",
		}})
	}
	c.log = newEventLog(cfg.Logger)
	c.hooks = discreet(joined(c.metrics.hooks(), c.log.hooks(), c.wakes(), guarded(*cfg.Hooks, cfg.Logger)), cfg.RedactError)
	if err := c.newForwarder(); err != nil {
		return nil, err
	}
	return c, nil
}

// stats are the claims' states, none before and after Run.
func (c *Consumer) stats() []kafka.PartitionStats {
	if e := c.engine.Load(); e != nil {
		return e.source.Stats()
	}
	return nil
}

// Plan is the arithmetic that New has proved.
func (c *Consumer) Plan() Plan { return c.plan }

// Run consumes until ctx ends. Then nothing begins any more, what is in flight finishes within DrainGrace, its outcomes
// are settled, offsets committed, the group left and everything closed, and Run returns nil.
//
// It returns an error when it cannot start (a *StartError with all reasons), when it had to give up (a handler or a call
// ran past MaxPollInterval, or the member was fenced), and when something did not close in order. After that the process
// should end and be started again. Last offsets that could not be committed are in the log: those records come again, and
// are known. A second Run is ErrStarted.
func (c *Consumer) Run(ctx context.Context) error {
	if !c.ran.CompareAndSwap(false, true) {
		return ErrStarted
	}
	for _, w := range warnings(c.cfg, c.specs) {
		c.cfg.Logger.Warn(w)
	}
	e, err := c.open(ctx)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	c.engine.Store(e)
	return e.run(ctx)
}

// unlessStopped is err, or nil if ctx has ended: a consumer that is asked to stop while it starts has not failed.
func unlessStopped(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

package consumer

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

func (c *Consumer) stack(s spec, inbox *dedup.Route, letters *dlq.Writer, shared []*downstream.Gate) *middleware.Route {
	rt := &middleware.Route{
		Name: s.name, Group: c.cfg.Group, Inbox: inbox, Graves: inbox, Kind: dedup.KindOf(s.work),
		DeadLetters: lettersTo{letters, s.options.DeadLetterTopic},
		Identity:    s.identity(), Decode: s.decode,
		Classifier: s.classifier(),
		Retry: middleware.Policy{
			Attempts: s.options.Attempts, AttemptTimeout: s.options.AttemptTimeout,
			Base: s.options.BackoffBase, Cap: s.options.BackoffCap, NormalTime: s.options.NormalTime,
			MaxHold: c.cfg.MaxHold, DeadLetterTimeout: c.cfg.DeadLetterTimeout,
		},
		Gates:    middleware.NewGates(downstream.GateConfig{ProbeTimeout: c.probeTimeout(add(s.callTimeout(), s.options.AttemptTimeout))}, shared...),
		Flood:    s.options.Flood,
		NotTaken: c.replays.first,
		Batches:  true, Hooks: c.hooks, RedactError: c.cfg.RedactError, Tracer: c.cfg.Tracer, Logger: c.cfg.Logger,
	}
	if len(s.options.Middlewares) == 0 {
		rt.Work = s.work
	}
	if s.call != nil {
		rt.Repeatable = true // every Repeat that is not refused says so
		rt.Call = &middleware.Call{
			Dependency: s.call.dependency, Timeout: s.call.timeout, HardGrace: c.cfg.HardGrace, Do: s.call.do, Inbox: inbox,
			Keyed: s.call.repeat == RepeatKeyed, NoFallback: s.call.noFallback,
		}
	}
	return rt
}

func (c *Consumer) subscription(s spec, rt *middleware.Route, inbox *dedup.Route) kafka.Subscription {
	return kafka.Subscription{
		Started: claims{s.name, inbox, c.cfg.Logger}.started,
		Name:    s.name, Order: s.options.Order, MaxBatch: s.options.MaxBatch, Lanes: s.options.Lanes,
		Gates: []kafka.Gate{rt.Gates}, AttemptTimeout: max(s.options.AttemptTimeout, s.callTimeout()),
	}
}

// lettersTo writes a route's dead letters to the topic that the route names.
type lettersTo struct {
	writer *dlq.Writer
	topic  string
}

// Write implements middleware.DeadLetters.
func (l lettersTo) Write(ctx context.Context, letter dlq.Letter) error {
	letter.Topic = l.topic
	return l.writer.Write(ctx, letter)
}

// identity is the resolver chain: the user's, or the conventions that need no configuration.
func (s spec) identity() []dedup.Resolver {
	if s.options.Identity != nil {
		return s.options.Identity
	}
	return dedup.DefaultIdentity()
}

// classifier is one for inbox and stack: what an attempt is counted as is what is decided about it.
func (s spec) classifier() *fault.Classifier { return &fault.Classifier{Rules: s.options.Rules} }

// errNoWork is a bug of ours: New refuses a route that does nothing.
var errNoWork = errors.New("the route does nothing with its records")

// handler is the innermost function: what the user gave, found on the message's context.
func (s spec) handler() message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		ctx := msg.Context()
		switch work := s.work.(type) {
		case dedup.Queue:
			return work(ctx, dedup.Pending(ctx), record.Of(ctx))
		case dedup.Batch:
			rs, err := record.Records(msg)
			if err != nil {
				return err
			}
			return work(ctx, dedup.Tx(ctx), rs)
		case dedup.Apply:
			return work(ctx, dedup.Tx(ctx), record.Of(ctx))
		}
		return errNoWork
	}
}

package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/parking"
)

// engine is everything that is open during a Run.
type engine struct {
	c        *Consumer
	inbox    *dedup.Inbox
	letters  *dlq.Writer
	source   kafka.Transport
	router   *message.Router
	routes   map[string]*middleware.Route
	inboxes  map[string][]*dedup.Route // by topic; complete before anything is subscribed
	found    topics
	parked   parked
	watches  []func() // each ends one, and waits for it
	stopping atomic.Bool
}

// open brings everything up in the order in which it depends on each other; what was opened before a failure is closed.
func (c *Consumer) open(ctx context.Context) (_ *engine, err error) {
	e := &engine{c: c, routes: make(map[string]*middleware.Route, len(c.specs)), inboxes: make(map[string][]*dedup.Route)}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close(context.WithoutCancel(ctx)))
		}
	}()
	if e.found, err = c.prepare(ctx, e.openInbox); err != nil {
		return nil, err
	}
	e.watch(c.log.flush)
	e.watch(c.metrics.calls.watch(c.hooks))
	if e.letters, err = dlq.NewWriter(c.letterConfig()); err != nil {
		return nil, err
	}
	if e.source, err = e.transport(); err != nil {
		return nil, err
	}
	if e.router, err = message.NewRouter(c.routerConfig(), newRouterLogger(c.cfg.Logger, &e.stopping, c.cfg.RedactError)); err != nil {
		return nil, err
	}
	database, letters := c.gate(fault.Database), map[string]*downstream.Gate{} // by topic: one that is missing is not the others' fault
	for _, s := range c.specs {
		topic := s.options.DeadLetterTopic
		if letters[topic] == nil {
			letters[topic] = c.gate(fault.DeadLetterTopic)
		}
		if err := e.add(ctx, s, database, letters[topic]); err != nil {
			return nil, fmt.Errorf("route %q: %w", s.name, err)
		}
	}
	e.forward(ctx)
	e.watchParking(context.WithoutCancel(ctx))
	c.warnOfStrangers(ctx) // now that ours are known: of two that start at once, one sees the other
	e.watchRetention(context.WithoutCancel(ctx))
	return e, nil
}

// watch notes what is to end when everything else has.
func (e *engine) watch(stop func()) { e.watches = append(e.watches, stop) }

func (e *engine) watchRetention(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.c.watchRetention(ctx, e.found)
	}()
	e.watch(func() {
		cancel()
		<-done
	})
}

// openInbox brings the schema up to date if it may, and opens the inbox.
func (e *engine) openInbox(ctx context.Context) (err error) {
	if e.c.cfg.Migrate {
		if err := migrations.Up(ctx, e.c.cfg.DB); err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
	}
	e.inbox, err = dedup.Open(ctx, e.c.cfg.DB, e.c.inboxConfig())
	return err
}

// add puts one route into the router: its subscriptions, the stack, the user's middlewares, the handler. What is
// replayed, and what was parked and is due, goes through the very same layers as what is new.
func (e *engine) add(ctx context.Context, s spec, shared ...*downstream.Gate) error {
	inbox, err := e.inbox.Route(ctx, dedup.RouteConfig{
		Group: e.c.cfg.Group, Name: s.name, AttemptTimeout: s.options.AttemptTimeout,
		CallTimeout: s.callTimeout(), MaxBatch: s.options.MaxBatch, Store: s.options.Store,
		Classifier: s.classifier(), ParkedKey: s.parkedKey(),
		Retention: e.c.retention(s, e.found), Horizon: e.c.horizonOfRoute(s),
	})
	if err != nil {
		return err
	}
	e.inboxes[s.topic] = append(e.inboxes[s.topic], inbox)
	rt := e.c.stack(s, inbox, e.letters, shared)
	e.watch(rt.Gates.Close)
	var due *parking.Source
	if s.parks() {
		if due, err = e.park(ctx, s, rt); err != nil {
			return err
		}
	}
	stack, err := middleware.Stack(rt)
	if err != nil {
		return err
	}
	e.routes[s.name] = rt
	sub := e.c.subscription(s, rt, inbox)
	e.handle(s.name, s.topic, e.source.Subscriber(sub), s, stack)
	sub.Replay = true
	e.handle(replayHandler(s.name), s.replay, e.source.Subscriber(sub), s, stack)
	if due != nil {
		e.handle(parkedHandler(s.name), s.topic, due, s, stack)
	}
	return nil
}

func (e *engine) handle(name, topic string, from message.Subscriber, s spec, stack []message.HandlerMiddleware) {
	h := e.router.AddConsumerHandler(name, topic, from, s.handler())
	h.AddMiddleware(stack...)
	h.AddMiddleware(s.options.Middlewares...)
}

// run lets the router work until ctx ends, the source gives up or the router fails, and closes everything.
func (e *engine) run(ctx context.Context) error {
	// The router gets a context without an end: it would cancel what is in flight at once, which the source's own Stop
	// lets finish.
	routed := make(chan struct{})
	var failed error
	go func() {
		defer close(routed)
		failed = e.router.Run(context.WithoutCancel(ctx))
	}()
	// A router that is closed before it has subscribed would take the closed source for a failure: so first this.
	select {
	case <-e.router.Running():
	case <-routed:
	}
	watch, enough := context.WithCancel(ctx)
	defer enough()
	select {
	case <-ctx.Done():
	case <-e.source.Done():
	case <-routed:
	case <-e.watchHandlers(watch):
	}
	e.stopping.Store(true)
	err := e.close(context.WithoutCancel(ctx))
	<-routed
	return errors.Join(failed, e.hung(), err)
}

// close ends what is open, from the door inwards: the source takes nothing more and drains, then nobody is left who
// needs the router, the inbox, or the writer of dead letters. It is bounded by the graces.
func (e *engine) close(ctx context.Context) error {
	var errs []error
	var due sync.WaitGroup
	due.Go(e.parked.stop) // beside the source: they have the same graces
	if e.source != nil {
		errs = append(errs, e.source.Stop(ctx))
	}
	due.Wait()
	if e.router != nil {
		errs = append(errs, e.router.Close())
	}
	if e.inbox != nil {
		e.inbox.Close()
	}
	if e.letters != nil {
		errs = append(errs, e.letters.Close())
	}
	for _, stop := range e.watches {
		stop()
	}
	return errors.Join(errs...)
}

package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
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
	database, topic := c.gate(fault.Database), c.gate(fault.DeadLetterTopic)
	for _, s := range c.specs {
		if err := e.add(ctx, s, database, topic); err != nil {
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

func (c *Consumer) inboxConfig() dedup.Config {
	return dedup.Config{
		Writers: c.cfg.Writers, MaxBatch: largestBatch(c.specs), MaxBatchTime: c.cfg.MaxBatchTime,
		HardGrace: c.cfg.HardGrace, CommitTimeout: c.cfg.CommitReserve, Hooks: c.hooks, Logger: c.cfg.Logger,
	}
}

func (c *Consumer) letterConfig() dlq.WriterConfig {
	return dlq.WriterConfig{
		Client: c.cfg.client(), Group: c.cfg.Group, Timeout: c.cfg.DeadLetterTimeout, Hooks: c.hooks, Logger: c.cfg.Logger,
		Topic: func(source string) string { return source + dlq.Suffix }, // each letter names its own
	}
}

// errNoTransport is Config.Transport's fault.
var errNoTransport = errors.New("Config.Transport gave neither a transport nor an error")

// transport makes what delivers. In place of one that failed it gives a nil interface: nobody may try to stop it.
func (e *engine) transport() (kafka.Transport, error) {
	cfg := e.c.sourceConfig()
	if slices.ContainsFunc(e.c.specs, spec.byOffset) {
		cfg.Begin = e.begin
	}
	made, err := e.c.cfg.Transport(cfg)
	if err != nil {
		return nil, err
	}
	if made == nil {
		return nil, errNoTransport
	}
	return made, nil
}

// source is the default transport.
func source(cfg kafka.SourceConfig) (kafka.Transport, error) { return kafka.NewSource(cfg) }

func (c *Consumer) sourceConfig() kafka.SourceConfig {
	return kafka.SourceConfig{
		Client: c.cfg.client(), Group: c.cfg.Group, Topics: c.inputs(), Balancer: c.cfg.Balancer,
		InstanceID: c.cfg.InstanceID, OnOffsetLoss: c.cfg.OnOffsetLoss,
		SessionTimeout: c.cfg.SessionTimeout, HeartbeatInterval: c.cfg.HeartbeatInterval,
		RebalanceTimeout: c.cfg.RebalanceTimeout, DrainGrace: c.cfg.DrainGrace, HardGrace: c.cfg.HardGrace,
		CommitReserve: c.cfg.CommitReserve, MaxPollInterval: c.cfg.MaxPollInterval, CommitInterval: c.cfg.CommitInterval,
		MaxInFlight: c.cfg.MaxInFlight, MaxInFlightBytes: c.cfg.MaxInFlightBytes, Hooks: c.hooks, Logger: c.cfg.Logger,
	}
}

// routerConfig gives the router longer than the source needs: on its own time-out it would return nil and leave
// handlers behind.
func (c *Consumer) routerConfig() message.RouterConfig {
	return message.RouterConfig{CloseTimeout: c.cfg.DrainGrace + c.cfg.HardGrace + c.cfg.CommitReserve}
}

// gate is of a dependency that all routes share: one of them probes for all. A probe is over when its attempt must be,
// the call before it included.
func (c *Consumer) gate(dependency string) *downstream.Gate {
	longest := time.Duration(0)
	for _, s := range c.specs {
		longest = max(longest, add(s.callTimeout(), s.options.AttemptTimeout))
	}
	return downstream.NewGate(downstream.GateConfig{Name: dependency, ProbeTimeout: c.probeTimeout(longest)})
}

func (c *Consumer) probeTimeout(attempt time.Duration) time.Duration {
	return 2*attempt + c.cfg.HardGrace
}

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

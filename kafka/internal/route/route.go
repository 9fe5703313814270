// Package route is how the records of claims come to those who subscribed: named routes, the subscriptions that serve
// them one after the other, and the messages between a claim's line and a handler. There is no network in it; every
// transport of records shares it.
package route

import (
	"context"
	"time"

	"github.com/headrace/headrace/kafka/internal/claim"
	"github.com/headrace/headrace/record"
)

// Gate is kafka.Gate.
type Gate interface {
	Shut() bool
	Watch(f func()) (stop func())
}

// Config is how a route wants its records. The graces and Report are required.
type Config struct {
	Line claim.LineConfig
	// Gates must all be open for anything to begin.
	Gates []Gate
	// Started is kafka.Subscription.Started.
	Started func(ctx context.Context, first *record.Record) (ended func(ctx context.Context))
	// DrainGrace and HardGrace bound the handlers of a subscription that has ended while its claims go on.
	DrainGrace, HardGrace time.Duration
	Report                func(record.Report)
}

// Route is a named subscription of one topic. It outlives the subscriptions that serve it: what one leaves unsettled
// waits here, and holds the offset, until the next of its name comes. Its owner's lock guards it.
type Route struct {
	Config

	Topic string

	cur      *Subscription // the current or the last one, nil before the first
	reported bool          // that nobody serves it
}

// Served says whether a subscription reads the route now.
func (r *Route) Served() bool { return r.cur != nil && !r.cur.over() }

// Subscribe begins the next subscription, which ends with ctx. It takes over once the last delivery of the one before
// has ended.
func (r *Route) Subscribe(ctx context.Context) *Subscription {
	next := newSubscription(ctx, r.Config, r.cur)
	r.cur, r.reported = next, false
	return next
}

// Serve hands the records of a line of the claim to the current subscription, for as long as both live.
func (r *Route) Serve(c *claim.Claim, l *claim.Line) {
	if r.cur != nil && r.cur.enter() {
		go deliver(c, l, r.cur)
	}
}

// End ends the current subscription.
func (r *Route) End() {
	if r.cur != nil {
		r.cur.End()
	}
}

// Gone says that nobody has served the route for longer than patience, once.
func (r *Route) Gone(patience time.Duration) bool {
	if r.reported || r.cur == nil || !r.cur.over() || r.cur.endedFor() <= patience {
		return false
	}
	r.reported = true
	return true
}

// ReportGone is the report of a route that is Gone.
func (r *Route) ReportGone() record.Report {
	return record.Report{
		Kind: record.ReportSubscriptionGone, Route: r.Line.Name, Topic: r.Topic, Partition: -1, Offset: -1,
		Hint: "the subscription ended while the source goes on; its records hold the offset until it is subscribed again",
	}
}

// Table has the routes by topic. Its owner's lock guards it.
type Table map[string][]*Route

// For gives the route of that name that nobody serves any more, or a new one.
func (t Table) For(topic string, cfg Config) *Route {
	for _, r := range t[topic] {
		if r.Line.Name == cfg.Line.Name && !r.Served() {
			return r
		}
	}
	r := &Route{Config: cfg, Topic: topic}
	t[topic] = append(t[topic], r)
	return r
}

// Complete says whether every one of topics has a route, and as many as subscriptions has for it.
func (t Table) Complete(topics []string, subscriptions map[string]int) bool {
	for _, topic := range topics {
		if len(t[topic]) == 0 {
			return false
		}
	}
	for topic, n := range subscriptions {
		if len(t[topic]) < n {
			return false
		}
	}
	return true
}

// End ends every subscription.
func (t Table) End() {
	for _, routes := range t {
		for _, r := range routes {
			r.End()
		}
	}
}

// Gone gives the routes that are Gone.
func (t Table) Gone(patience time.Duration) (gone []*Route) {
	for _, routes := range t {
		for _, r := range routes {
			if r.Gone(patience) {
				gone = append(gone, r)
			}
		}
	}
	return gone
}

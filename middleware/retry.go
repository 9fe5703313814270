package middleware

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// Retry is the layer that owns every record that did not succeed, with those that must stay behind it: a chain. For each
// chain [Policy.Decide] says what happens, and the layer does it: another attempt after a back-off, a hold, parking, the
// dead letter, or nothing because the delivery is over.
//
// Retry, hold and dead letters are one layer because they are three ends of one decision about one record. As layers
// within each other they wait for each other's records: a permanent failure was dead-lettered when its neighbour's hold
// was over, and not before.
//
// Records that succeed have left by then: the inbox settles them. A message without failures costs this layer no
// goroutine and no timer; a failed chain is one goroutine with a shallow stack.
func Retry(rt *Route) message.HandlerMiddleware {
	return rt.layer(retryLayer, func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			rs, err := record.Records(msg)
			if err != nil {
				return nil, err
			}
			d := &delivery{rt: rt, msg: msg, next: next, soft: rs[0].Soft()}
			return nil, d.run(rs)
		}
	})
}

// delivery is one message on its way through the layers inside of Retry, as often as its records need.
type delivery struct {
	rt   *Route
	msg  *message.Message // read only: every pass gets a message of its own
	next message.HandlerFunc
	soft <-chan struct{}
}

// fewShare is how many records of a message there must be for each chain that gives up its lane for its dead letters.
const fewShare = 10

func (d *delivery) ctx() context.Context { return d.msg.Context() }

// errLeft stands on records about which nobody said anything.
var errLeft = errors.New("left without an outcome")

// run takes rs as far as they get in this delivery.
func (d *delivery) run(rs []*record.Record) error {
	if rs[0].Ending() { // handed out in the moment before its claim began to end
		return &givenBack{left: len(rs), all: len(rs)}
	}
	var held holds
	defer func() { held.end(false) }()
	ps, waited, ok := d.enter(&held, rs, false, noCall)
	if ok && waited && !record.Resume(rs) {
		ps.release()
		ok = false
	}
	if !ok {
		return &givenBack{left: len(rs), all: len(rs), cause: context.Cause(d.ctx())}
	}
	soon := d.early()
	defer soon.wait()
	chains := d.pass(rs, ps, soon, downstream.Streak{})
	for _, c := range chains {
		c.few = len(chains)*fewShare <= len(rs)
		if c.fault.Class == fault.ClassUnavailable && len(held.list) > 0 { // before the end of the one that it goes on with
			c.hold(or(c.fault.Dependency, fault.Database), c.reason)
		}
	}
	held.end(len(record.Remaining(rs)) < len(rs))
	d.follow(chains)
	soon.wait()
	if left := record.Remaining(rs); len(left) > 0 {
		return &givenBack{left: len(left), all: len(rs), cause: left[0].Err}
	}
	return nil
}

// follow runs chains side by side until each is settled or over. The first one runs here: the message's own goroutine
// has nothing else to do.
func (d *delivery) follow(chains []*chain) {
	if len(chains) == 0 {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait() // deferred, so that runtime.Goexit in the one here does not give the others' records back under them
	for _, c := range chains[1:] {
		wg.Go(c.run)
	}
	chains[0].run()
}

// enter takes what rs need to run: a pass of each gate, of the calls' only if they are about to call. While one of them
// is shut it waits there, in a hold; waited says that rs were told to wait, by waiting already or here, and must be
// resumed.
func (d *delivery) enter(h *holds, rs []*record.Record, waiting bool, calls needs) (_ passes, waited, ok bool) {
	var held downstream.Pass
	ps, shut := d.rt.Gates.try(held, calls)
	for waited = waiting; shut != nil; ps, shut = d.rt.Gates.try(held, calls) {
		if !waited {
			record.Wait(rs)
			waited = true
		}
		h.on(d.rt, rs, shut.Name(), atGate(shut))
		if held, ok = calls.wait(d.ctx(), d.soft, d.rt.Gates, shut); !ok {
			return nil, waited, false
		}
	}
	return ps, waited, true
}

// pass runs rs once through the inner layers, settles accounts with the gates, and gives the chains that are left. Those
// that soon takes run already; nil takes none. last is of the first one's calls.
func (d *delivery) pass(rs []*record.Record, ps passes, soon *early, last downstream.Streak) []*chain {
	defer ps.release() // after runtime.Goexit too; a pass that had its answer takes no second
	before := spent(rs)
	for _, r := range rs {
		r.Err = nil
	}
	inner, own := d.bring(record.Derive(d.msg, rs), ps, rs[0], last)
	if soon != nil {
		soon.all = rs
		inner.SetContext(context.WithValue(inner.Context(), earlyKey{}, soon))
	}
	_, err := d.next(inner)
	rs = soon.rest(rs)
	d.rt.measure(rs, before)
	chains := d.split(rs, before, err)
	settled := len(rs) - foreign(rs)
	for _, c := range chains {
		settled -= len(c.rs)
	}
	if settled > 0 {
		d.rt.Flood.Settled(partitionOf(rs[0]), settled)
	}
	d.rt.learn(ps, own, chains, settled > 0)
	return chains
}

// foreign counts those of rs that were other routes': that they are settled says nothing about anything.
func foreign(rs []*record.Record) (n int) {
	if len(rs) == 0 || !rs[0].Replay {
		return 0
	}
	for _, r := range rs {
		if r.Outcome() == record.Foreign {
			n++
		}
	}
	return n
}

// bring sends the pass of the calls' gate along with msg, for the one call that it is for, and what came of the one before.
func (d *delivery) bring(msg *message.Message, ps passes, head *record.Record, last downstream.Streak) (*message.Message, *brought) {
	p := ps.of(d.rt.Gates.called)
	if p.Gate() == nil {
		return msg, nil
	}
	b := &brought{pass: p, head: head, last: last}
	msg.SetContext(context.WithValue(msg.Context(), broughtKey{}, b))
	return msg, b
}

// spent notes what each of rs has spent so far; nil if nobody has anything, as in every first pass.
func spent(rs []*record.Record) map[*record.Record]time.Duration {
	var m map[*record.Record]time.Duration
	for _, r := range rs {
		if r.Spent > 0 {
			if m == nil {
				m = map[*record.Record]time.Duration{}
			}
			m[r] = r.Spent
		}
	}
	return m
}

// split makes chains of what has no outcome: one a domain, and one a record that depends on no other, in offset order.
// The record is the truth. err, what came out of a call, is only for those that have no verdict of their own.
func (d *delivery) split(rs []*record.Record, before map[*record.Record]time.Duration, err error) []*chain {
	var (
		chains []*chain
		at     map[string]*chain
		lost   int
	)
	for _, r := range rs {
		if r.Settled() {
			continue
		}
		if r.Err == nil {
			r.Err = or(err, errLeft)
		}
		if errors.Is(r.Err, errLeft) {
			lost++
		}
		if c := at[r.Domain()]; c != nil && r.Domain() != "" {
			c.rs = append(c.rs, r)
			continue
		}
		c := &chain{delivery: d, rs: []*record.Record{r}, before: before[r], fault: d.classify(r.Err)}
		if at == nil {
			at = map[string]*chain{}
		}
		at[r.Domain()] = c
		chains = append(chains, c)
	}
	// When a claim ends, what its records did in the last moment is durable and not settled: that is not lost.
	if lost > 0 && err == nil && !rs[0].Ending() && d.ctx().Err() == nil {
		d.reportLost(rs[0], lost)
	}
	return chains
}

func (d *delivery) reportLost(r *record.Record, n int) {
	d.rt.report(record.Report{
		Kind: record.ReportLeftUnsettled, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Err: errLeft,
		Hint: "a layer or middleware returned without an error and without an outcome; the records were given back",
	})
	d.rt.Logger.Debug("records left without an outcome", "route", d.rt.Name, "records", n)
}

// classify says what err means for its record.
func (d *delivery) classify(err error) fault.Fault {
	var call *CallError
	switch {
	case errors.Is(err, record.ErrNotRun):
		return fault.Fault{Rule: "not run"}
	case errors.Is(err, errLeft), errors.Is(err, errStray), errors.Is(err, ErrOrder):
		return fault.Fault{Class: fault.ClassCancelled, Rule: "left"}
	case d.ctx().Err() != nil:
		return fault.Fault{Class: fault.ClassCancelled, Rule: "delivery ended"}
	case errors.As(err, &call):
		return call.Fault
	case errors.Is(err, dedup.ErrRouteStopped):
		// A handler that ends the inbox's transaction is a bug of the route. Its records are as healthy as before, and
		// wait for a version without it.
		return fault.Fault{Class: fault.ClassUnavailable, Dependency: RouteStopped, Rule: "route stopped"}
	case causeOf(err) != "":
		return fault.Fault{Class: fault.ClassPermanent, Rule: string(causeOf(err))}
	}
	return d.rt.Classifier.Classify(d.ctx(), err)
}

// causeOf is the reason that an error has by its nature, "" for one that must be classified. A dead row's record died
// before, of what the row says.
func causeOf(err error) dlq.Reason {
	var (
		unread *DecodeError
		dead   *dedup.DeadError
	)
	switch {
	case errors.As(err, &unread):
		return dlq.Undecodable
	case errors.Is(err, dedup.ErrConflict):
		return dlq.IDConflict
	case errors.Is(err, dedup.ErrCrashLoop):
		return dlq.CrashLoop
	case errors.As(err, &dead):
		return or(dlq.Reason(dead.Reason), dlq.Permanent)
	case errors.Is(err, dedup.ErrDead):
		return dlq.Permanent
	}
	return ""
}

// learn tells the gates what a pass has shown. A failure counts more than a success beside it: the dependency may have
// gone down in between. The gate of the calls is not among them: it hears of calls from the breaker, and a handler that
// says the same dependency is down holds its own record.
func (rt *Route) learn(ps passes, own *brought, chains []*chain, settled bool) {
	var down outages
	answered := settled // by the database
	for _, c := range chains {
		switch f := c.fault; {
		case errors.Is(c.rs[0].Err, record.ErrNotRun):
		case f.Class == fault.ClassUnavailable && rt.Call != nil && f.Dependency == rt.Call.Dependency.Name():
			answered = true // by the inbox, before the call
		case f.Class == fault.ClassUnavailable:
			down.add(or(f.Dependency, fault.Database), f.RetryAfter, rt, c.head())
		case f.Class == fault.ClassCancelled, len(c.unread()) > 0:
		case f.RetryAfter > 0:
			down.add(RetryAfter, f.RetryAfter, rt, c.head())
			answered = true
		default:
			answered = true // its handler ran, or the inbox knew better: in a transaction either way
		}
	}
	for _, p := range ps {
		name := p.Gate().Name()
		found, failed := down[name]
		delete(down, name)
		switch {
		case own != nil && p == own.pass:
			p.Release()
		case failed && name == RetryAfter && !p.Turn():
			// A Retry-After is waited for by its record; only who probes for others pauses them again.
		case failed:
			p.FailedBecause(rt.until(found.after), found.why)
		case settled, answered && name == fault.Database:
			p.OK()
		default:
			p.Release()
		}
	}
	delete(down, RetryAfter)
	for name, found := range down { // met for the first time
		rt.Gates.Get(name).DownBecause(rt.until(found.after), found.why)
	}
}

// outages are the dependencies that a pass has found down: until when nobody should ask again, and what the first of its
// records failed with.
type outages map[string]outage

type outage struct {
	after time.Duration
	why   error
}

func (o *outages) add(name string, after time.Duration, rt *Route, r *record.Record) {
	if *o == nil {
		*o = outages{}
	}
	found, known := (*o)[name]
	if !known {
		found.why = rt.shown(r, r.Err)
	}
	found.after = max(found.after, after)
	(*o)[name] = found
}

// until is when a Retry-After is over, the zero time for none.
func (rt *Route) until(after time.Duration) time.Time {
	if after <= 0 {
		return time.Time{}
	}
	return time.Now().Add(min(after, rt.Retry.MaxHold))
}

func partitionOf(r *record.Record) Partition { return Partition{r.Topic, r.Partition} }

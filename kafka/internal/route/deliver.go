package route

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/kafka/internal/claim"
	"github.com/headrace/headrace/record"
)

// sendPatience is how often the running time of a batch that nobody takes is begun anew: it is not the handler's.
const sendPatience = time.Second

// startTimeout bounds Config.Started: what it remembers is worth a wait, not a claim.
const startTimeout = 5 * time.Second

// endTimeout bounds what Started returned: whoever gets the partition waits for it, and so does a stop.
const endTimeout = 100 * time.Millisecond

// delivery hands the batches of one line to one subscription.
type delivery struct {
	claim *claim.Claim
	line  *claim.Line
	sub   *Subscription
	ctx   context.Context // of the messages
}

// deliver runs for as long as the claim and the subscription both live. With Subscription.enter.
func deliver(c *claim.Claim, l *claim.Line, sub *Subscription) {
	defer sub.senders.Done()
	if sub.before != nil {
		// Only one goroutine may take from a line: that of an ended subscription is about to leave.
		<-sub.before.finished
	}
	d := &delivery{claim: c, line: l, sub: sub, ctx: valueContext{c.Hard(), sub.ctx}}
	for _, g := range sub.cfg.Gates {
		defer g.Watch(l.Wake)()
	}
	for first := true; ; first = false {
		b := l.Next(sub.done, d.shut)
		if b == nil {
			return
		}
		if first && sub.cfg.Started != nil {
			defer d.started(b.Records[0])()
		}
		d.send(b)
	}
}

// started tells the route of its first record, within startTimeout and the claim's life, and gives what tells it that
// the claim ends in order.
func (d *delivery) started(first *record.Record) (ended func()) {
	ctx, cancel := context.WithTimeout(d.ctx, startTimeout)
	defer cancel()
	go func() {
		select {
		case <-d.claim.Soft():
			cancel()
		case <-ctx.Done():
		}
	}()
	tell := d.sub.cfg.Started(ctx, first)
	first.Begin() // what was waited for is not the handler's time
	return func() {
		if tell == nil || d.claim.Lost() {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), endTimeout)
		defer cancel()
		tell(ctx)
	}
}

func (d *delivery) shut() bool {
	for _, g := range d.sub.cfg.Gates {
		if g.Shut() {
			return true
		}
	}
	return false
}

// send hands the batch to whoever reads the channel, or returns it if the line ends first.
func (d *delivery) send(b *claim.Batch) {
	ctx, cancel := context.WithCancelCause(d.ctx)
	msg := record.NewMessage(ctx, b.Records)
	select {
	case d.sub.out <- msg:
	default:
		if !d.sendSlowly(b, msg) {
			cancel(nil)
			b.Return()
			return
		}
	}
	go d.await(b, msg, cancel)
}

func (d *delivery) sendSlowly(b *claim.Batch, msg *message.Message) bool {
	tick := time.NewTicker(sendPatience)
	defer tick.Stop()
	for {
		select {
		case d.sub.out <- msg:
			return true
		case <-tick.C:
			record.BeginAll(b.Records)
		case <-d.sub.done:
			return false
		case <-d.claim.Soft():
			return false
		}
	}
}

// await waits for the handler's answer, for as long as the claim can use it.
func (d *delivery) await(b *claim.Batch, msg *message.Message, cancel context.CancelCauseFunc) {
	defer cancel(nil)
	select {
	case <-msg.Acked():
		d.acked(b)
	case <-msg.Nacked():
		record.GiveBack(b.Records)
	case <-d.claim.Closed():
	case <-d.sub.done:
		d.awaitGone(b, msg, cancel)
	}
}

// awaitGone is await for a subscription that has ended: its handler may finish within the same graces as at a revoke,
// then its records go back to the line.
func (d *delivery) awaitGone(b *claim.Batch, msg *message.Message, cancel context.CancelCauseFunc) {
	cfg := d.sub.cfg
	soft, hard := time.NewTimer(cfg.DrainGrace), time.NewTimer(cfg.DrainGrace+cfg.HardGrace)
	defer soft.Stop()
	defer hard.Stop()
	for {
		select {
		case <-msg.Acked():
			d.acked(b)
		case <-msg.Nacked():
			record.GiveBack(b.Records)
		case <-d.claim.Closed():
		case <-soft.C:
			cancel(record.ErrStopping)
			continue
		case <-hard.C:
			record.GiveBack(b.Records)
		}
		return
	}
}

// acked settles a message of one, for handlers that run without our stack. Of a larger message a handler that does not
// know of records has seen nothing: what the stack did not settle is given back, and said.
func (d *delivery) acked(b *claim.Batch) {
	if len(b.Records) == 1 {
		b.Records[0].Settle(record.Acked)
		return
	}
	left := b.Open()
	if left == 0 {
		return
	}
	first := record.Remaining(b.Records)[0]
	record.GiveBack(b.Records)
	if !first.Ending() {
		d.sub.cfg.Report(record.Report{
			Kind: record.ReportLeftUnsettled, Route: d.line.Name(), Topic: first.Topic, Partition: first.Partition, Offset: first.Offset,
			Hint: "a message of several records was acknowledged but not all were settled; use MaxBatch 1 for handlers that do not know of record.Records",
		})
	}
}

// valueContext ends with the claim and has the values of the subscription's context, but not its end: Watermill's
// Router cancels that at the first sign of its own end, when handlers may still finish.
type valueContext struct {
	context.Context
	values context.Context
}

func (c valueContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

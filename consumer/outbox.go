package consumer

import (
	"context"

	"github.com/headrace/headrace/outbox"
	"github.com/headrace/headrace/record"
)

// newForwarder makes what Config.Outbox asks for, nil for nothing. It speaks to nobody.
func (c *Consumer) newForwarder() (err error) {
	if c.cfg.Outbox == nil {
		return nil
	}
	cfg := *c.cfg.Outbox
	cfg.Client, cfg.Hooks = c.cfg.client(), c.hooks
	c.forwarder, err = outbox.NewForwarder(c.cfg.DB, cfg)
	if err != nil {
		return refuse([]Problem{{What: "the outbox cannot be forwarded", Err: err, Fix: "correct Config.Outbox"}})
	}
	return nil
}

// wakes are hooks that have the forwarder look when something was committed, and not only a moment later.
func (c *Consumer) wakes() record.Hooks {
	return record.Hooks{OnGroup: func(i record.GroupInfo) {
		if c.forwarder != nil && i.Result == "committed" {
			c.forwarder.Wake()
		}
	}}
}

// forward forwards the outbox until everything else has ended. What is published at the very end waits for the next one.
func (e *engine) forward(ctx context.Context) {
	if e.c.forwarder == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := e.c.forwarder.Run(ctx); err != nil {
			e.c.hooks.Report(record.Report{
				Kind: record.ReportOutboxUnreadable, Err: err, Hint: "events are kept, and nobody in this process sends them: restart it",
			})
		}
	}()
	e.watch(func() {
		cancel()
		<-done
	})
}

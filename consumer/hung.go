package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headrace/headrace/dedup"
)

// hungChecks is how many times within MaxPollInterval handlers and calls are looked at.
const hungChecks = 20

// hung says which handler or call has run past MaxPollInterval: nil if none has. Its record was taken from it long ago,
// and others are served by the writers and places that are left; but a goroutine that nobody can end is reason to start
// anew.
func (e *engine) hung() error {
	var errs []error
	if e.inbox != nil {
		errs = append(errs, e.tooLong("handler", e.inbox.Stuck))
	}
	for _, s := range e.c.specs {
		if rt := e.routes[s.name]; rt != nil {
			errs = append(errs, e.tooLong("call", rt.Stuck))
		}
	}
	for _, r := range e.parked.routes {
		errs = append(errs, r.hung(e.c.cfg.MaxPollInterval))
	}
	return errors.Join(errs...)
}

func (e *engine) tooLong(what string, stuck func() (dedup.Stuck, bool)) error {
	s, ok := stuck()
	if !ok || time.Since(s.Since) < e.c.cfg.MaxPollInterval {
		return nil
	}
	return fmt.Errorf("the %s of route %q has been at %s/%d/%d for %s, longer than MaxPollInterval %s: restart the "+
		"process, and let the %s heed its context", what, s.Route, s.Topic, s.Partition, s.Offset, since(s.Since),
		e.c.cfg.MaxPollInterval, what)
}

// watchHandlers gives a channel that closes when a handler or a call has run past MaxPollInterval. ctx ends the watch.
func (e *engine) watchHandlers(ctx context.Context) <-chan struct{} {
	found := make(chan struct{})
	go func() {
		tick := time.NewTicker(e.c.cfg.MaxPollInterval / hungChecks)
		defer tick.Stop()
		for e.hung() == nil {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		close(found)
	}()
	return found
}

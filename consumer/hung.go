package consumer

import (
	"context"
	"fmt"
	"time"
)

// hungChecks is how many times within MaxPollInterval handlers are looked at.
const hungChecks = 20

// hung says which handler has run past MaxPollInterval: nil if none has. Its record was taken from it long ago, and
// others are served by the writers that are left; but a goroutine that nobody can end is reason to start anew.
func (e *engine) hung() error {
	if e.inbox == nil {
		return nil
	}
	s, ok := e.inbox.Stuck()
	if !ok || time.Since(s.Since) < e.c.cfg.MaxPollInterval {
		return nil
	}
	return fmt.Errorf("the handler of route %q has been at %s/%d/%d for %s, longer than MaxPollInterval %s: restart the "+
		"process, and let the handler heed its context", s.Route, s.Topic, s.Partition, s.Offset, since(s.Since), e.c.cfg.MaxPollInterval)
}

// watchHandlers gives a channel that closes when a handler has run past MaxPollInterval. ctx ends the watch.
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

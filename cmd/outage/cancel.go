package main

import (
	"context"
	"net/http"
	"time"

	"github.com/headrace/headrace/downstream"
)

// released is what became of calls that were cancelled while the service was cut off.
type released struct {
	calls int           // that were under way when they were
	worst time.Duration // until one had returned and its place was free
}

const (
	cancelledCalls = 5
	cancelAfter    = 100 * time.Millisecond
)

// cancelCalls makes calls of its own, beside the route's: by then the breaker of that one is open.
func (p *phase) cancelCalls(ctx context.Context) error {
	d, err := downstream.New(downstream.Config{
		Name:    "cancelled",
		Breaker: downstream.BreakerConfig{Trip: func(downstream.BreakerCounts) bool { return false }},
	})
	if err != nil {
		return err
	}
	client := &http.Client{Transport: d.Transport(p.base)}
	for range cancelledCalls {
		took, hung, err := p.cancelCall(ctx, d, client)
		if err != nil {
			return err
		}
		if hung {
			p.released.calls++
			p.released.worst = max(p.released.worst, took)
		}
	}
	return nil
}

// cancelCall says how long a call took to end once it was cancelled; one that has ended before was not hung.
func (p *phase) cancelCall(ctx context.Context, d *downstream.Dependency, client *http.Client) (took time.Duration, hung bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.proxy.url()+"/", http.NoBody)
	if err != nil {
		return 0, false, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if resp, err := client.Do(r); err == nil {
			_ = resp.Body.Close() // a service that has an answer was not away
		}
	}()
	timer := time.NewTimer(cancelAfter)
	defer timer.Stop()
	select {
	case <-ended:
		return 0, false, nil
	case <-timer.C:
	}
	at := time.Now()
	cancel()
	<-ended
	p.eventually(context.WithoutCancel(ctx), func() bool { return d.InUse() == 0 })
	return time.Since(at), true, nil
}

package consumer

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headrace/headrace/internal/health"
	"github.com/headrace/headrace/middleware"
)

var (
	errNotStarted = errors.New("not started")
	errStopping   = errors.New("stopping")
)

// Live says whether the process should go on: nil while it does, and before Run. A hold is no reason to be restarted;
// a record that ran past MaxPollInterval is. Safe for concurrent use.
func (c *Consumer) Live() error {
	if e := c.engine.Load(); e != nil {
		return errors.Join(e.source.Live(), e.hung())
	}
	return nil
}

// waiting says which route waits for what, in a fixed order; nil if none does.
func (e *engine) waiting() error {
	var errs []error
	for _, s := range e.c.specs {
		rt := e.routes[s.name]
		down := rt.Gates.Down()
		for _, name := range slices.Sorted(maps.Keys(down)) {
			errs = append(errs, fmt.Errorf("route %q holds: %s has been down for %s", s.name, name, since(down[name])))
		}
		if at, full := rt.Full(); full {
			errs = append(errs, fmt.Errorf("route %q holds: its parking is full, and records have waited for room for %s", s.name, since(at)))
		}
		refusing := rt.Flood.Refusing()
		for _, p := range middleware.Partitions(refusing) {
			errs = append(errs, fmt.Errorf("route %q holds: the flood guard has refused dead letters of %s/%d for %s",
				s.name, p.Topic, p.Partition, since(refusing[p])))
		}
	}
	return errors.Join(errs...)
}

func since(t time.Time) time.Duration { return time.Since(t).Round(time.Second) }

// Ready says whether records flow: nil while the member has joined its group and no route holds. Safe for concurrent
// use.
func (c *Consumer) Ready() error {
	e := c.engine.Load()
	switch {
	case e == nil:
		return errNotStarted
	case e.stopping.Load():
		return errStopping
	}
	return errors.Join(e.source.Ready(), e.waiting())
}

// Handler serves /livez, /readyz and /metrics: 200 with "ok", or 503 with the reason, a line each. It may be mounted
// before Run.
func (c *Consumer) Handler() http.Handler {
	return health.Probes{
		Live: c.Live, Ready: c.Ready, Redact: c.cfg.RedactError, Metrics: promhttp.HandlerFor(c.cfg.Registry, promhttp.HandlerOpts{}),
	}.Handler()
}

package consumer

import (
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headrace/headrace/internal/health"
	"github.com/headrace/headrace/internal/redact"
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

// Ready says whether records flow: nil while the member has joined its group and no route holds. Its text has a line for
// each route or partition that does not: what it waits for, since when, why (at most 200 bytes, redacted) and what to do.
// What was found is in it for errors.Is and errors.As. Safe for concurrent use.
func (c *Consumer) Ready() error {
	e := c.engine.Load()
	switch {
	case e == nil:
		return errNotStarted
	case e.stopping.Load():
		return errStopping
	}
	return errors.Join(e.unread(), e.waiting())
}

// Handler serves /livez, /readyz and /metrics: 200 with "ok", or 503 with the reason, a line each. It may be mounted
// before Run.
func (c *Consumer) Handler() http.Handler {
	return health.Probes{
		Live:    func() error { return redact.Of(c.Live(), c.cfg.RedactError) },
		Ready:   c.Ready,
		Metrics: promhttp.HandlerFor(c.cfg.Registry, promhttp.HandlerOpts{}),
	}.Handler()
}

// Package health serves what an orchestrator asks a process: whether it lives, whether it is ready, and its metrics.
package health

import (
	"net/http"

	"github.com/headrace/headrace/internal/redact"
)

// Probes are what is asked.
type Probes struct {
	// Live is nil while the process should go on, Ready while it does its work. Both answer at once, and from any goroutine.
	Live, Ready func() error
	// Redact gives the text of an error that is shown.
	//
	// Defaults to nil: the error's own, without secrets.
	Redact func(error) string
	// Metrics serves /metrics.
	Metrics http.Handler
}

// Handler serves /livez, /readyz and /metrics: 200 with "ok", or 503 with the reason, a line each.
func (p Probes) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", p.probe(p.Live))
	mux.HandleFunc("GET /readyz", p.probe(p.Ready))
	mux.Handle("GET /metrics", p.Metrics)
	return mux
}

func (p Probes) probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, redact.Of(err, p.Redact).Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n")) // the prober went away: nobody to tell
	}
}

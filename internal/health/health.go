// Package health serves what an orchestrator asks a process: whether it lives, whether it is ready, and its metrics.
package health

import (
	"fmt"
	"net/http"
	"strings"
)

// Probes are what is asked.
type Probes struct {
	// Live is nil while the process should go on, Ready while it does its work. Both answer at once, and from any goroutine.
	// The text of their errors is shown: what it must not tell is not in it.
	Live, Ready func() error
	// Metrics serves /metrics.
	Metrics http.Handler
}

// Handler serves /livez, /readyz and /metrics: 200 with "ok", or 503 with the reason, a line each.
func (p Probes) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", probe(p.Live))
	mux.HandleFunc("GET /readyz", probe(p.Ready))
	mux.Handle("GET /metrics", p.Metrics)
	return mux
}

func probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, lines(err.Error(), mostLines), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n")) // the prober went away: nobody to tell
	}
}

// mostLines bounds an answer: whoever probes reads a few KiB of it.
const mostLines = 50

// lines are the first n of a text's, and how many there are more.
func lines(text string, n int) string {
	all := strings.Split(text, "\n")
	if len(all) <= n {
		return text
	}
	return strings.Join(all[:n], "\n") + fmt.Sprintf("\nand %d more", len(all)-n)
}

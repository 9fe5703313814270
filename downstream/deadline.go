package downstream

import (
	"context"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// withDeadline gives req, or a copy, with what is left of ctx in the header that the dependency reads. A try that has less
// than a millisecond left says 0.
func (t *transport) withDeadline(ctx context.Context, req *http.Request) *http.Request {
	at, bounded := ctx.Deadline()
	if t.d.cfg.DeadlineHeader == "" || !bounded {
		return req
	}
	out := *req
	if out.Header = maps.Clone(req.Header); out.Header == nil {
		out.Header = http.Header{}
	}
	out.Header.Set(t.d.cfg.DeadlineHeader, strconv.FormatInt(max(time.Until(at), 0).Milliseconds(), 10))
	return &out
}

package idempotency

import "time"

// Hooks are called when something happens, where it does: they must be quick, must not block, and be safe for concurrent
// use. Any of them may be nil. Metrics are one set of hooks, which package idemprom fills; this package knows no metrics
// library.
type Hooks struct {
	// OnRoute: a route was made. It comes before all else of the route, so that its series can begin at zero.
	OnRoute func(route string)
	// OnBegin: a keyed request has come. OnRequest follows, whatever becomes of it.
	OnBegin func(route string)
	// OnRequest: a keyed request is over.
	OnRequest func(RequestInfo)
	// OnStats: Run has looked at the table, as it does each SweepEvery. Without this hook it does not look.
	OnStats func([]Stats)
	// OnSweep: keys past their retention were deleted by this process, one at least.
	OnSweep func(keys int64)
}

func (h *Hooks) route(route string) {
	if h.OnRoute != nil {
		h.OnRoute(route)
	}
}

func (h *Hooks) begin(route string) {
	if h.OnBegin != nil {
		h.OnBegin(route)
	}
}

func (h *Hooks) request(i RequestInfo) {
	if h.OnRequest != nil {
		h.OnRequest(i)
	}
}

func (h *Hooks) sweep(keys int64) {
	if h.OnSweep != nil && keys > 0 {
		h.OnSweep(keys)
	}
}

// RequestInfo tells of a keyed request that is over. It may grow; construct it with field names.
type RequestInfo struct {
	Route string
	// Outcome is one of Outcomes.
	Outcome string
	// Err is what went wrong on our side, its text redacted; nil for most.
	Err  error
	Took time.Duration
}

// Outcomes are what may become of a request.
var Outcomes = [...]string{Executed, Released, Replayed, InProgress, Unknown, Mismatched, Refused, Failed, Lost, Panicked}

// The outcomes of requests.
const (
	// Executed: the handler ran, and its answer is stored.
	Executed = "executed"
	// Released: the handler ran, and its answer is not the key's: the next request runs.
	Released = "released"
	// Replayed: the stored answer was given.
	Replayed = "replayed"
	// InProgress: 409, another request with the key is running.
	InProgress = "in_progress"
	// Unknown: of External, nobody knows what became of the key. An operator must know of these.
	Unknown = "unknown"
	// Mismatched: 422, the key came with another request before.
	Mismatched = "mismatched"
	// Refused: 400, 401 or 413; nothing was asked of the database.
	Refused = "refused"
	// Failed: the transaction was not committed, or did not begin.
	Failed = "failed"
	// Lost: the reply to COMMIT was lost, or the handler ended its transaction, or an answer of External could not be
	// stored.
	Lost = "lost"
	// Panicked: the handler panicked: in Tx mode nothing was done; of External the key is unknown.
	Panicked = "panicked"
)

package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
)

// charge is what a member asks the payment service for.
type charge struct {
	key, order, do string
	n              int
}

// receipt is what it gets.
type receipt struct {
	Order string `json:"order"`
}

// answer is how the service answers instead of charging.
type answer func(w http.ResponseWriter, r *http.Request)

func unavailable(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusServiceUnavailable)
}

// payments is a payment service that charges once for each key, and answers a key that it knows as it did before. It
// stands in the test's process: its book outlives every member that is killed. Safe for concurrent use.
type payments struct {
	*httptest.Server

	paid atomic.Bool // whoever could not pay can now

	mu       sync.Mutex
	outage   answer                     // nil while it is well
	charges  map[string]string          // the book: the order by key
	keys     map[string]map[string]bool // what each order was asked for with, charged or not
	asked    map[string]int             // how often, by order
	turned   int                        // requests that an outage answered
	inside   int
	peak     int            // the most that were inside at once, since watch
	held     []charge       // in the order of their coming
	release  chan struct{}  // closed when those that are held may go
	failures map[string]int // by order, of those that fail a few times
}

// pays gives the world a payment service, which all of its routes call.
func (w *world) pays() *payments {
	w.t.Helper()
	p := &payments{
		charges: map[string]string{}, keys: map[string]map[string]bool{}, asked: map[string]int{},
		failures: map[string]int{}, release: make(chan struct{}),
	}
	p.Server = httptest.NewServer(p)
	w.t.Cleanup(p.Close)
	w.t.Cleanup(p.letGo)
	w.payments = p
	return p
}

// ServeHTTP charges, or does what the order or the outage says.
func (p *payments) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.FormValue("n"))
	c := charge{key: r.Header.Get("Idempotency-Key"), order: r.FormValue("order"), do: r.FormValue("do"), n: n}
	outage := p.enter(c)
	defer p.leave()
	if outage != nil {
		outage(w, r)
		return
	}
	p.serve(w, r, c)
}

func (p *payments) serve(w http.ResponseWriter, r *http.Request, c charge) {
	switch c.do {
	case "answer": // that status and nothing else, until all are paid
		if !p.paid.Load() {
			w.WriteHeader(c.n)
			return
		}
	case "busy": // another request with the key is at work, the first times
		if p.fails(c) {
			w.WriteHeader(http.StatusConflict)
			return
		}
	case "lost": // charged, and the answer never arrives, the first times
		p.book(c)
		if p.fails(c) {
			panic(http.ErrAbortHandler)
		}
	case "held": // charged, and the answer comes when the test says so
		p.book(c)
		p.hold(r.Context(), c)
	}
	p.book(c)
	_ = json.NewEncoder(w).Encode(receipt{Order: c.order})
}

func (p *payments) enter(c charge) answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keys[c.order] == nil {
		p.keys[c.order] = map[string]bool{}
	}
	p.keys[c.order][c.key] = true
	p.asked[c.order]++
	p.inside++
	p.peak = max(p.peak, p.inside)
	if p.outage != nil {
		p.turned++
	}
	return p.outage
}

func (p *payments) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inside--
}

// fails says whether it is one of the first n times, at least the first.
func (p *payments) fails(c charge) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures[c.order]++
	return p.failures[c.order] <= max(c.n, 1)
}

func (p *payments) book(c charge) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.charges[c.key] = c.order
}

func (p *payments) hold(ctx context.Context, c charge) {
	p.mu.Lock()
	p.held = append(p.held, c)
	release := p.release
	p.mu.Unlock()
	select {
	case <-release:
	case <-ctx.Done():
	}
}

// letGo answers all that are held, and holds nobody from now on.
func (p *payments) letGo() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !closed(p.release) {
		close(p.release)
	}
}

// holding is how many orders it has held so far.
func (p *payments) holding() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held)
}

// down has it answer everybody like this, until up.
func (p *payments) down(a answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outage = a
}

func (p *payments) up() { p.down(nil) }

// present is how many requests are inside now.
func (p *payments) present() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inside
}

// turnedAway is how many requests an outage has answered.
func (p *payments) turnedAway() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.turned
}

// watch forgets how many were inside at once; watched gives it.
func (p *payments) watch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.peak = p.inside
}

func (p *payments) watched() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peak
}

// most is how often the order was asked for that was asked for most.
func (p *payments) most() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, asked := range p.asked {
		n = max(n, asked)
	}
	return n
}

// audit compares the service's book with the effects of a route that calls it.
func (p *payments) audit(b *books) {
	p.mu.Lock()
	defer p.mu.Unlock()
	charged := map[string]int{}
	for _, order := range p.charges {
		charged[order]++
	}
	for order, n := range charged {
		if n > 1 {
			b.complain("order %s was charged %d times", order, n)
		}
	}
	for order, keys := range p.keys {
		if len(keys) != 1 || keys[""] {
			b.complain("order %s was asked for with the idempotency keys %v", order, keys)
		}
	}
	for at, effects := range b.effects {
		for _, e := range effects {
			if charged[e.id] != 1 {
				b.complain("%s is effected, and its order %s was charged %d times", at, e.id, charged[e.id])
			}
		}
	}
}

// all is how many requests there were.
func (p *payments) all() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, asked := range p.asked {
		n += asked
	}
	return n
}

// again are the orders that were asked for more than once.
func (p *payments) again() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := map[string]int{}
	for order, asked := range p.asked {
		if asked > 1 {
			n[order] = asked
		}
	}
	return n
}

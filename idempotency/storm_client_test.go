package idempotency_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/headrace/headrace/idempotency"
)

// client asks for keys, its own and those of others, in any order, and goes away when it likes.
func (w *stormWorld) client(ctx context.Context) {
	rng, ids := w.rand(), w.ids()
	for ctx.Err() == nil && !w.all(ids) {
		mine := ids[rng.IntN(len(ids))]
		for range 1 + rng.IntN(6) {
			patience, cancel := context.WithCancel(w.ctx)
			if rng.IntN(5) == 0 {
				patience, cancel = context.WithTimeout(w.ctx, time.Duration(rng.Int64N(int64(w.timeout))))
			}
			status := w.ask(patience, rng, mine)
			cancel()
			if final(status) && rng.IntN(3) > 0 {
				break
			}
		}
	}
}

// ask sends a request to some process, and gives what it is answered; 0 for a panic.
func (w *stormWorld) ask(ctx context.Context, rng *rand.Rand, i id) (status int) {
	body := "7"
	other := !w.calm.Load() && rng.IntN(10) == 0 && len(w.answered(i)) > 0
	if other {
		body = "8"
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set(idempotency.Header, i.key)
	r.Header.Set("Tenant", i.tenant)
	answer := httptest.NewRecorder()
	if panicked(func() { w.processes[rng.IntN(processes)][i.route].ServeHTTP(answer, r) }) {
		return 0
	}
	if final(answer.Code) {
		w.heard(i, answer.Body.String(), other)
	}
	return answer.Code
}

// final says that an answer is a handler's, and for good.
func final(status int) bool {
	return status == http.StatusCreated || status == http.StatusPaymentRequired
}

// heard keeps what a key was answered. Another request's answer is somebody else's.
func (w *stormWorld) heard(i id, answer string, other bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if other || !strings.HasPrefix(answer, i.String()+":") {
		w.wrong[i] = true
		return
	}
	if w.answers[i] == nil {
		w.answers[i] = map[string]bool{}
	}
	w.answers[i][answer] = true
}

// all says that every key was answered.
func (w *stormWorld) all(ids []id) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.answers) == len(ids)
}

func panicked(f func()) (is bool) {
	defer func() { is = recover() != nil }()
	f()
	return false
}

// trouble is what a handler does instead of answering, nil for most.
func (w *stormWorld) trouble(rng *rand.Rand) http.HandlerFunc {
	if w.calm.Load() {
		return nil
	}
	switch {
	case rng.Float64() > w.rough:
		return nil
	case rng.IntN(2) == 0:
		return func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	}
	return status(http.StatusBadGateway)
}

// hesitate outlasts every deadline, now and then.
func (w *stormWorld) hesitate(rng *rand.Rand) {
	if !w.calm.Load() && rng.Float64() < w.rough {
		pause(time.Duration(rng.Int64N(int64(4 * w.timeout))))
	}
}

// charge has its effect in its key's transaction.
func (w *stormWorld) charge(rw http.ResponseWriter, r *http.Request) {
	rng, ctx := w.rand(), r.Context()
	key, _ := idempotency.KeyOf(ctx)
	var n int64
	err := idempotency.Tx(ctx).QueryRow(ctx, "insert into charges (tenant, key) values ($1, $2) returning id", key.Principal, key.Key).Scan(&n)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.hesitate(rng)
	if f := w.trouble(rng); f != nil {
		f(rw, r)
		return
	}
	if !w.calm.Load() && rng.IntN(8) == 0 { // what it may not do
		_, _ = idempotency.Tx(ctx).Exec(ctx, "rollback; begin")
	}
	rw.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(rw, "%s: %d", id{"charge", key.Principal, key.Key}, n)
}

// pay has its effect at the bank.
func (w *stormWorld) pay(rw http.ResponseWriter, r *http.Request) {
	rng, ctx := w.rand(), r.Context()
	key, _ := idempotency.KeyOf(ctx)
	i := id{"pay", key.Principal, key.Key}
	w.hesitate(rng)
	if f := w.trouble(rng); f != nil {
		f(rw, r)
		return
	}
	answer := w.bank.pay(ctx, i)
	if answer == "" {
		w.tooLate(rw, r, i, rng)
		return
	}
	w.hesitate(rng)
	if f := w.trouble(rng); f != nil {
		f(rw, r)
		return
	}
	rw.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprint(rw, answer)
}

// tooLate is what may be said when nothing was done: that somebody else may do it, that nobody shall, or nothing.
func (w *stormWorld) tooLate(rw http.ResponseWriter, r *http.Request, i id, rng *rand.Rand) {
	switch rng.IntN(3) {
	case 0:
		idempotency.Forget(r.Context())
		fallthrough
	case 1:
		rw.WriteHeader(http.StatusServiceUnavailable)
	default:
		rw.WriteHeader(http.StatusPaymentRequired)
		_, _ = fmt.Fprint(rw, i, refused)
	}
}

const refused = ": refused"

// reconcile asks the bank.
func (w *stormWorld) reconcile(rw http.ResponseWriter, r *http.Request) idempotency.Verdict {
	rng := w.rand()
	key, _ := idempotency.KeyOf(r.Context())
	answer := w.bank.find(id{"pay", key.Principal, key.Key})
	w.hesitate(rng)
	switch {
	case !w.calm.Load() && rng.IntN(4) == 0:
		return idempotency.StillUnknown
	case answer == "":
		return idempotency.NotDone
	}
	rw.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprint(rw, answer)
	return idempotency.Done
}

// bank is the other system: it does what it is asked to as often as it is asked to, but not past its caller's deadline.
type bank struct {
	mu       sync.Mutex
	payments map[id][]string
}

func newBank() *bank { return &bank{payments: map[id][]string{}} }

// pay looks at the clock itself: a context's timer may be late on a busy machine.
func (b *bank) pay(ctx context.Context, i id) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if deadline, _ := ctx.Deadline(); !time.Now().Before(deadline) {
		return ""
	}
	b.payments[i] = append(b.payments[i], fmt.Sprintf("%s: %d", i, len(b.payments[i])+1))
	return b.payments[i][len(b.payments[i])-1]
}

// find is the first payment's answer, "" if there is none.
func (b *bank) find(i id) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.payments[i]) == 0 {
		return ""
	}
	return b.payments[i][0]
}

func (b *bank) paid(i id) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.payments[i])
}

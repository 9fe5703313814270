package idempotency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/internal/redact"
)

// Keys runs each key once. It is safe for concurrent use; any number of processes may share its table.
type Keys struct {
	pool   *pgxpool.Pool
	cfg    Config
	sql    texts
	stored []string // the names of the headers that are

	mu     sync.Mutex
	routes map[string]bool
}

// New makes Keys that are kept in pool's database, and asks nothing of it; [Keys.Check] does. Somebody must call [Keys.Run]
// in one process at least, or the table grows for ever. The pool stays the caller's.
func New(pool *pgxpool.Pool, cfg Config) (*Keys, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if pool == nil {
		return nil, errors.New("idempotency: the pool is nil")
	}
	return &Keys{
		pool: pool, cfg: cfg, sql: textsFor(cfg.Table, cfg.Timeout),
		stored: slices.Concat(storedHeaders, cfg.Headers), routes: map[string]bool{},
	}, nil
}

// Check is nil when the table is there. Call it at start.
func (k *Keys) Check(ctx context.Context) error {
	if _, err := k.pool.Exec(ctx, k.sql.check); err != nil {
		return fmt.Errorf("idempotency: table %s (%s): %w", k.cfg.Table, k.howToMigrate(), err)
	}
	return nil
}

func (k *Keys) howToMigrate() string {
	if k.cfg.Table == DefaultTable {
		return "run 'headrace migrate up', or create another table by idempotency.Schema and name it in Config.Table"
	}
	return "create it by idempotency.Schema"
}

// call is a keyed request.
type call struct {
	key         Key
	fingerprint []byte
	request     *http.Request
	body        []byte
	handler     http.Handler
}

// reply is what becomes of a call: what the client is told, and what the operator is.
type reply struct {
	outcome string
	answer  Answer
	err     error
}

// mode runs a call.
type mode func(*call) reply

// handler is h with keys. Safe methods have nothing to be run once, and pass.
func (k *Keys) handler(route string, h http.Handler, run mode) http.Handler {
	k.register(route, h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if safe(r.Method) {
			h.ServeHTTP(w, r)
			return
		}
		k.cfg.Hooks.begin(route)
		began, rep := time.Now(), reply{outcome: Panicked}
		defer func() {
			k.tell(r, RequestInfo{Route: route, Outcome: rep.outcome, Err: rep.err, Took: time.Since(began)})
		}()
		rep = k.serve(w, r, route, h, run)
		rep.answer.write(w, rep.outcome == Replayed)
	})
}

// register panics as http.Handle does: it is the programmer's mistake, at start.
func (k *Keys) register(route string, h http.Handler) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := validName("route's name", route); err != nil {
		panic("idempotency: " + err.Error())
	}
	if h == nil {
		panic("idempotency: the handler of route " + route + " is nil")
	}
	if k.routes[route] {
		panic("idempotency: there are two routes " + route + ": they would share their keys")
	}
	k.routes[route] = true
	k.cfg.Hooks.route(route)
}

// serve has the whole body before it asks for a connection: a slow client must hold none.
func (k *Keys) serve(w http.ResponseWriter, r *http.Request, route string, h http.Handler, run mode) reply {
	header, err := keyOf(r.Header)
	if err != nil {
		return badKey(err)
	}
	principal := k.cfg.Principal(r)
	if principal == "" {
		return nobody()
	}
	key := Key{Route: route, Method: r.Method, Principal: principal, Key: header}
	if err := errors.Join(validName("principal", principal), validName("method", r.Method)); err != nil {
		return refusedByDatabase(err)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(k.cfg.MaxBytes)))
	if err != nil {
		return badBody(err, k.cfg.MaxBytes)
	}
	return run(&call{key: key, fingerprint: fingerprint(r, body), request: r, body: body, handler: h})
}

func tooLong(err error) bool {
	var long *http.MaxBytesError
	return errors.As(err, &long)
}

// execute runs the handler. A panic goes on through it.
func (c *call) execute(ctx context.Context, run *run, limit int) *buffer {
	b := newBuffer(limit)
	c.handler.ServeHTTP(b, c.again(withRun(ctx, run)))
	return b
}

// again is the request with its body from the beginning.
func (c *call) again(ctx context.Context) *http.Request {
	r := c.request.WithContext(ctx)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(c.body)), int64(len(c.body))
	return r
}

// finishTimeout bounds what comes after the handler.
const finishTimeout = 10 * time.Second

// detached goes on without its client: what has begun is finished, and whoever repeats the request finds its answer.
func (c *call) detached(limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.request.Context()), limit)
}

// known is the reply of a key that has a row.
func (k *Keys) known(c *call, r *row) reply {
	switch {
	case !bytes.Equal(r.fingerprint, c.fingerprint):
		return mismatch()
	case r.status == nil && r.past:
		return k.isUnknown()
	case r.status == nil:
		return k.inProgress()
	}
	h, err := decodeHeader(r.header)
	if err != nil {
		return lost(err)
	}
	return reply{outcome: Replayed, answer: Answer{Status: int(*r.status), Header: h, Body: r.body}}
}

func (k *Keys) tell(r *http.Request, i RequestInfo) {
	ctx := r.Context()
	i.Err = k.redacted(i.Err)
	switch {
	case i.Err == nil:
	case i.Outcome == Failed && ctx.Err() != nil: // a client that left before anything began
	case i.Outcome == Lost, i.Outcome == Unknown:
		k.cfg.Logger.ErrorContext(ctx, "idempotency: nobody knows what became of a request", "route", i.Route, "outcome", i.Outcome, "error", i.Err)
	default:
		k.cfg.Logger.WarnContext(ctx, "idempotency: a request was not carried out", "route", i.Route, "outcome", i.Outcome, "error", i.Err)
	}
	k.cfg.Hooks.request(i)
}

// redacted is err with the text that may be kept and shown.
func (k *Keys) redacted(err error) error { return redact.Of(err, k.cfg.RedactError) }

func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

package dedup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/internal/pools"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// Inbox is the memory of what each route has dealt with, in Postgres. It is safe for concurrent use; whoever opened it
// closes it.
type Inbox struct {
	cfg  Config
	id   uuid.UUID // of this process, among those that mark suspects
	pool *pgxpool.Pool
	shut func()             // ends pool
	stop context.CancelFunc // of the sweeps and of what says that it lives
	ctx  context.Context

	turns *semaphore.Weighted // see turn
	stuck stuckRuns

	mu      sync.Mutex
	idle    sync.Cond // a goroutine ended
	live    int       // goroutines that Close waits for
	closed  bool
	renewed time.Time // when all connections were made anew
	routes  []*Route
}

// Open opens the inbox of the database that pool is connected to, through a pool of its own made from pool's
// configuration: there an ended context cancels the statement and not the connection. It refuses a database without the
// schema (ErrNoSchema, with a hint), one that may lose what it has committed (synchronous_commit = off), and a role that
// may not write to the inbox's tables.
func Open(ctx context.Context, pool *pgxpool.Pool, cfg Config) (*Inbox, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	own, shut, err := pools.Open(ctx, ownConfig(pool, cfg), cfg.ApplicationName)
	if err != nil {
		return nil, fmt.Errorf("open the inbox's pool: %w", err)
	}
	if err := check(ctx, own); err != nil {
		shut()
		return nil, err
	}
	in := &Inbox{cfg: cfg, id: uuid.New(), pool: own, shut: shut, turns: semaphore.NewWeighted(everybody)}
	in.idle.L = &in.mu
	in.ctx, in.stop = context.WithCancel(context.WithoutCancel(ctx))
	in.live++
	go in.vouch() //nolint:contextcheck // lives until Close, not until Open returns
	return in, nil
}

// cancelDelay is how long the server may take to answer a cancelled statement before its connection is closed. A busy
// server needs more than a moment: it starts a process for each cancel request.
const cancelDelay = 3 * time.Second

func ownConfig(pool *pgxpool.Pool, cfg Config) *pgxpool.Config {
	own := pool.Config()
	own.MaxConns, own.MinConns, own.MinIdleConns = int32(cfg.MaxConns), 0, 0
	own.ConnConfig.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: cancelDelay}
	}
	return own
}

func check(ctx context.Context, pool *pgxpool.Pool) error {
	if err := migrations.Check(ctx, pool); err != nil {
		if errors.Is(err, migrations.ErrVersion) {
			return fmt.Errorf("%w: %w", ErrNoSchema, err)
		}
		return fmt.Errorf("look at the inbox's schema: %w", err)
	}
	var durable, missing string
	if err := pool.QueryRow(ctx, "select current_setting('synchronous_commit'), ("+missingSQL+")").Scan(&durable, &missing); err != nil {
		return fmt.Errorf("look at synchronous_commit and privileges: %w", err)
	}
	if durable == "off" {
		return &setupError{
			what: "inbox: synchronous_commit is off, so a crash of the database could lose effects whose offsets are committed already",
			hint: "set it to on (or local) for this role or database",
		}
	}
	if missing != "" {
		return &setupError{
			what: "inbox: this role lacks " + missing,
			hint: "grant select, insert, update, delete on all tables in schema headrace to it",
		}
	}
	return nil
}

// setupError is what is wrong with the database, and what to do about it.
type setupError struct{ what, hint string }

func (e *setupError) Error() string { return e.what }
func (e *setupError) Hint() string  { return e.hint }

// Route opens the inbox of one route and starts its writers. A route that is new gets its number in the database; one that
// has run with another store is refused (ErrStoreChanged).
func (in *Inbox) Route(ctx context.Context, cfg RouteConfig) (*Route, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults(in.cfg)
	consumer, err := in.consumer(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("route %s: %w", cfg.Name, err)
	}
	rt := newRoute(in, cfg, consumer)
	if cfg.Store == ByOffset {
		rt.offsets = &offsetStore{rt: rt}
		rt.replays = newRoute(in, cfg, consumer)
		rt.replays.parent, rt.replays.suspects = rt, rt.suspects
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return nil, errClosed
	}
	in.start(rt)
	if rt.replays != nil {
		in.start(rt.replays)
	}
	if cfg.Retention > 0 {
		in.live++
		go newSweeper(rt).loop(in.ctx) //nolint:contextcheck // lives until Close, not until Route returns
	}
	return rt, nil
}

func newRoute(in *Inbox, cfg RouteConfig, consumer int32) *Route {
	rt := &Route{in: in, cfg: cfg, consumer: consumer, sql: newOpenSQL(cfg), flight: make(map[uuid.UUID]flying)}
	rt.reach.least, rt.reach.every, rt.reach.most = leastReach, saveEvery, int32(cfg.MaxBatch)
	rt.pace = newPace(cfg.MaxBatch, in.cfg.MaxBatchTime)
	rt.changed.L = &rt.mu
	rt.caution.least = copyAtLeast
	rt.suspects = &suspects{rt: rt}
	rt.graves.rt = rt
	return rt
}

// start starts rt's writers. The lock is held.
func (in *Inbox) start(rt *Route) {
	in.routes = append(in.routes, rt)
	for range rt.cfg.Writers {
		in.live++
		go newWriter(rt).loop()
	}
}

var errClosed = errors.New("inbox is closed")

// consumer gets or makes the route's number. The insert comes second: each one would use up a number.
func (in *Inbox) consumer(ctx context.Context, cfg RouteConfig) (id int32, err error) {
	var was Store
	get := func() error {
		return in.pool.QueryRow(ctx, consumerIDSQL, cfg.Group, cfg.Name).Scan(&id, &was)
	}
	if get() != nil {
		if _, err := in.pool.Exec(ctx, consumerSQL, cfg.Group, cfg.Name, cfg.Store); err != nil {
			return 0, err
		}
		if err := get(); err != nil {
			return 0, err
		}
	}
	if was != cfg.Store {
		return 0, &storeChangedError{group: cfg.Group, route: cfg.Name, was: was, is: cfg.Store}
	}
	return id, nil
}

// Close ends the routes and waits for what runs: call it when no Run or Bury is going on. A record that is still in line
// is not run. A goroutine that was reported as stuck is not waited for, and a server that does not answer for some seconds
// only: one statement, its cancel request, and 2 s for its connections.
func (in *Inbox) Close() {
	in.stop()
	in.mu.Lock()
	in.closed = true
	routes := in.routes
	in.mu.Unlock()
	for _, rt := range routes {
		rt.close()
	}
	in.mu.Lock()
	for in.live > 0 {
		in.idle.Wait()
	}
	in.mu.Unlock()
	in.shut()
}

// acquire gives a connection, in a time after which the database counts as unavailable.
func (in *Inbox) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	return in.pool.Acquire(ctx)
}

// left counts a goroutine out.
func (in *Inbox) left() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.live--
	in.idle.Broadcast()
}

// joined counts one in, unless the inbox is closed.
func (in *Inbox) joined() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return false
	}
	in.live++
	return true
}

// takeBack takes rows back in a transaction of its own. It tries for as long as a restart of the database takes: the rows
// stand for effects that do not exist.
func (in *Inbox) takeBack(consumer int32, ids, coords string) (err error) {
	const tries = 30
	for range tries {
		ctx, cancel := context.WithTimeout(context.Background(), acquireTimeout)
		_, err = in.pool.Exec(ctx, escapedSQL, consumer, ids, coords)
		cancel()
		if err == nil || isServerError(err) && doubtOf(err) == none {
			return err
		}
		if !backoff.Wait(in.ctx, time.Second) {
			return err
		}
	}
	return err
}

func (in *Inbox) attempted(rt *Route, e *entry, class string) {
	if f := in.cfg.Hooks.OnAttempt; f != nil {
		f(record.AttemptInfo{Route: rt.cfg.Name, Class: class, Took: e.took, Attempt: e.r.Attempts + 1})
	}
}

func (in *Inbox) answered(rt *Route, counts []int) {
	f := in.cfg.Hooks.OnInbox
	if f == nil {
		return
	}
	for a, n := range counts {
		if n > 0 {
			f(record.InboxInfo{Route: rt.cfg.Name, Answer: Answer(a).String(), Records: n})
		}
	}
}

func (in *Inbox) report(r record.Report) {
	if f := in.cfg.Hooks.OnReport; f != nil {
		f(r)
	}
}

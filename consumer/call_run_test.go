package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// payments is a service that charges each idempotency key once, and has the faults of such services.
type payments struct {
	*httptest.Server

	down atomic.Bool

	mu      sync.Mutex
	asked   map[string]int    // by order
	charged map[string]string // the order, by key
}

func newPayments(t *testing.T) *payments {
	t.Helper()
	p := &payments{asked: map[string]int{}, charged: map[string]string{}}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

// ServeHTTP charges an order. Of its kinds, "busy" is refused once, "lost" is charged once without an answer, and
// "declined" always says no.
func (p *payments) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	order, kind := r.FormValue("order"), r.FormValue("kind")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[order]++
	first := p.asked[order] == 1
	switch {
	case p.down.Load(), kind == "busy" && first:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case kind == "declined":
		w.WriteHeader(http.StatusPaymentRequired)
		return
	}
	p.charged[r.Header.Get("Idempotency-Key")] = order
	if kind == "lost" && first {
		panic(http.ErrAbortHandler)
	}
	_ = json.NewEncoder(w).Encode(receipt{ID: "receipt of " + order})
}

// charges is how often each order was charged.
func (p *payments) charges() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := map[string]int{}
	for _, order := range p.charged {
		n[order]++
	}
	return n
}

func (p *payments) calls(order string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[order]
}

// route charges an order and writes down its receipt.
func (p *payments) route(d *downstream.Dependency) CallRoute[item, receipt] {
	client := &http.Client{Transport: d.Transport(p.Client().Transport)}
	return CallRoute[item, receipt]{
		Name: "charge", Topic: "orders", Dependency: d, Repeat: RepeatKeyed, CallTimeout: 5 * time.Second,
		Call: func(ctx context.Context, e Event[item]) (r receipt, err error) {
			form := url.Values{"order": {e.Data.ID}, "kind": {e.Data.Kind}}
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/charges", strings.NewReader(form.Encode()))
			if err != nil {
				return r, err
			}
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			resp, err := client.Do(req)
			if err != nil {
				return r, err
			}
			defer func() { _ = resp.Body.Close() }()
			if err := downstream.Check(resp); err != nil {
				return r, err
			}
			return r, json.NewDecoder(resp.Body).Decode(&r)
		},
		Apply: func(ctx context.Context, tx pgx.Tx, e Event[item], r receipt) error {
			return effect(ctx, tx, "charge", item{ID: e.Data.ID, Kind: r.ID})
		},
		Options: Options{BackoffBase: time.Millisecond, BackoffCap: 10 * time.Millisecond},
	}
}

// receipts are what the route has written, by order.
func (b *bed) receipts() map[string]string {
	b.t.Helper()
	rows, err := b.pool.Query(b.t.Context(), `select id, kind from effects where route = 'charge'`)
	require.NoError(b.t, err)
	pairs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[item])
	require.NoError(b.t, err)
	got := map[string]string{}
	for _, pair := range pairs {
		require.NotContains(b.t, got, pair.ID, "an effect twice")
		got[pair.ID] = pair.Kind
	}
	return got
}

func TestCallRoute(t *testing.T) {
	t.Parallel()

	t.Run("ChargesEachOrderOnceWhateverBecomesOfTheAnswer", func(t *testing.T) {
		t.Parallel()
		b, p := newBed(t), newPayments(t)
		r := b.start(b.config(), p.route(dependency(t, "payments")))
		b.produce(items("ok", 40)...)
		b.produce(items("busy", 5)...)
		b.produce(items("lost", 5)...)
		b.produce(items("declined", 3)...)
		require.Equal(t, map[record.Outcome]int{record.Effected: 50, record.Dead: 3}, b.outcomes(53))
		text := scrape(t, r.c.cfg.Registry)
		r.stop()

		receipts := b.receipts()
		require.Len(t, receipts, 50)
		for order, n := range p.charges() {
			require.Equal(t, 1, n, order)
			require.Equal(t, "receipt of "+order, receipts[order])
		}
		require.Len(t, p.charges(), 50)
		require.Equal(t, 2, p.calls("lost-0"))
		require.EqualValues(t, 3, b.length("orders.dlq"))
		require.Zero(t, b.behind())
		for _, want := range []string{
			`headrace_calls_total{dependency="payments",outcome="succeeded",route="charge"} 50`,
			`headrace_calls_total{dependency="payments",outcome="answered",route="charge"} 3`,
			`headrace_calls_total{dependency="payments",outcome="failed",route="charge"} 10`,
			`headrace_call_duration_seconds_count{dependency="payments"} 63`,
			`headrace_breaker_trips_total{dependency="payments"} 0`,
			`headrace_dead_letters_total{reason="permanent",route="charge"} 3`,
			`headrace_topic_retention_seconds{topic="orders"} `,
			`headrace_topic_retention_seconds{topic="orders.billing.replay"} `,
		} {
			require.Contains(t, text, "\n"+want)
		}
	})

	t.Run("HoldsWhileTheDependencyIsDownAndLosesNothing", func(t *testing.T) {
		t.Parallel()
		b, p := newBed(t), newPayments(t)
		p.down.Store(true)
		d := dependency(t, "payments", func(c *downstream.Config) {
			c.Breaker = downstream.BreakerConfig{MinRequests: 5, OpenFor: 100 * time.Millisecond}
		})
		cfg := b.config()
		var lines lockedBuffer
		cfg.Logger = slog.New(slog.NewTextHandler(&lines, nil))
		r := b.start(cfg, p.route(d))
		b.produce(items("order", 200)...)
		b.eventually("readiness says what is down, and for how long", func() bool {
			code, text := r.ask("/readyz")
			return code == http.StatusServiceUnavailable && strings.Contains(text, `route "charge" holds: payments has been down for `)
		})
		before := r.c.metrics.calls.find("payments").open()
		b.eventually("the time counts while it is open", func() bool { return r.c.metrics.calls.find("payments").open() > before })
		b.eventually("a scrape shows the state", func() bool {
			return strings.Contains(scrape(t, r.c.cfg.Registry), `headrace_breaker_state{dependency="payments",state="open"} 1`)
		})
		require.NoError(t, r.c.Live(), "a restart would not bring it back")
		p.down.Store(false)
		require.Equal(t, map[record.Outcome]int{record.Effected: 200}, b.outcomes(200))
		b.eventually("readiness is green again", func() bool { code, _ := r.ask("/readyz"); return code == http.StatusOK })
		// A record is settled in its transaction, and its hold ends when that has returned.
		b.eventually("nothing holds", func() bool {
			return strings.Contains(scrape(t, r.c.cfg.Registry), `headrace_holding{dependency="payments",route="charge"} 0`)
		})
		text := scrape(t, r.c.cfg.Registry)
		r.stop()

		require.Len(t, b.receipts(), 200)
		require.Len(t, p.charges(), 200)
		for order, n := range p.charges() {
			require.Equal(t, 1, n, order)
		}
		require.Zero(t, b.length("orders.dlq"))
		require.Contains(t, text, `headrace_breaker_state{dependency="payments",state="closed"} 1`)
		require.Contains(t, text, `headrace_holding{dependency="payments",route="charge"} 0`)
		require.NotContains(t, text, `headrace_breaker_trips_total{dependency="payments"} 0`)
		require.Contains(t, lines.String(), `level=WARN msg="breaker opens" dependency=payments`)
		require.Contains(t, lines.String(), `msg="breaker closes" dependency=payments`)
	})

	t.Run("QueuesWithTheResultOfTheCallAndDoesNotCallAgainForAStatementThatFails", func(t *testing.T) {
		t.Parallel()
		b, p := newBed(t), newPayments(t)
		route := p.route(dependency(t, "payments"))
		route.Apply = nil
		var failures atomic.Int32
		route.Queue = func(batch *pgx.Batch, e Event[item], r receipt) error {
			if e.Data.ID == "order-7" && failures.Add(1) == 1 {
				batch.Queue("do $$ begin raise exception 'not today' using errcode = '40001'; end $$")
			}
			batch.Queue("insert into effects (route, id, kind) values ('charge', $1, $2)", e.Data.ID, r.ID)
			return nil
		}
		b.produce(items("order", 40)...)
		b.produce(items("declined", 3)...)
		r := b.start(b.config(), route)
		require.Equal(t, map[record.Outcome]int{record.Effected: 40, record.Dead: 3}, b.outcomes(43))
		r.stop()
		receipts := b.receipts()
		require.Len(t, receipts, 40)
		require.Equal(t, "receipt of order-7", receipts["order-7"])
		require.GreaterOrEqual(t, failures.Load(), int32(2))
		for i := range 40 {
			require.Equal(t, 1, p.calls(fmt.Sprintf("order-%d", i)), i)
		}
	})

	t.Run("DoesNotCallAgainForAnApplyThatFails", func(t *testing.T) {
		t.Parallel()
		b, p := newBed(t), newPayments(t)
		route := p.route(dependency(t, "payments"))
		apply := route.Apply
		var failures atomic.Int32
		route.Apply = func(ctx context.Context, tx pgx.Tx, e Event[item], r receipt) error {
			if failures.Add(1) == 1 {
				return fault.Transient(errors.New("not today"))
			}
			return apply(ctx, tx, e, r)
		}
		b.produce(items("order", 1)...)
		r := b.start(b.config(), route)
		b.outcomes(1)
		r.stop()
		require.Equal(t, map[string]string{"order-0": "receipt of order-0"}, b.receipts())
		require.Equal(t, 1, p.calls("order-0"))
	})

	t.Run("CallsAgainWithTheSameKeyWhenAnotherProcessTakesOver", func(t *testing.T) {
		t.Parallel()
		b, p := newBed(t), newPayments(t)
		hanging := p.route(dependency(t, "payments"))
		called := make(chan struct{})
		hanging.Apply = func(ctx context.Context, _ pgx.Tx, _ Event[item], _ receipt) error {
			close(called)
			<-ctx.Done()
			return context.Cause(ctx)
		}
		cfg := b.config()
		cfg.DrainGrace = 10 * time.Millisecond
		b.produce(items("order", 1)...)
		first := b.start(cfg, hanging)
		<-called
		first.end()
		_ = first.ended() // it had no time to finish
		second := b.start(b.config(), p.route(dependency(t, "payments")))
		require.Equal(t, map[record.Outcome]int{record.Effected: 1}, b.outcomes(1))
		second.stop()
		require.Equal(t, 2, p.calls("order-0"))
		require.Equal(t, map[string]int{"order-0": 1}, p.charges())
	})
}

// lockedBuffer is what loggers of many goroutines write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

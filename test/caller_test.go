package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// caller is how a member reaches the payment service. Without a URL it does not.
type caller struct {
	URL         string
	MinRequests int           // of the breaker
	OpenFor     time.Duration // of the breaker
	Timeout     time.Duration // of one call
}

// dependency is the payment service as one member sees it.
func (c caller) dependency() *downstream.Dependency {
	d, err := downstream.New(downstream.Config{Name: "payments", RefuseInTransaction: true, Breaker: downstream.BreakerConfig{
		MinRequests: c.MinRequests, OpenFor: cmp.Or(c.OpenFor, 100*time.Millisecond),
	}})
	if err != nil {
		panic(err) // a test's own mistake
	}
	return d
}

// client sends what d lets through.
func (c caller) client(d *downstream.Dependency) *http.Client {
	return &http.Client{Transport: d.Transport(&http.Transport{MaxIdleConnsPerHost: 100})}
}

// charges is what a route's Call does.
func (c caller) charges(client *http.Client) func(context.Context, consumer.Event[order]) (receipt, error) {
	return func(ctx context.Context, e consumer.Event[order]) (got receipt, err error) {
		form := url.Values{"order": {e.ID}, "do": {e.Data.Ask}, "n": {strconv.Itoa(e.Data.N)}}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/charges", strings.NewReader(form.Encode()))
		if err != nil {
			return got, err
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp, err := client.Do(req)
		if err != nil {
			return got, err
		}
		defer func() { _ = resp.Body.Close() }()
		if err := downstream.Check(resp); err != nil {
			return got, err
		}
		return got, json.NewDecoder(resp.Body).Decode(&got)
	}
}

// charging is a route that charges each order, by call, before it does what the order says.
func (s setup) charging(
	name string, d *downstream.Dependency, call func(context.Context, consumer.Event[order]) (receipt, error),
) consumer.CallRoute[order, receipt] {
	return consumer.CallRoute[order, receipt]{
		Name: name, Topic: s.Topic, Dependency: d, Repeat: consumer.RepeatKeyed, CallTimeout: s.Caller.Timeout, Call: call,
		Apply: func(ctx context.Context, tx pgx.Tx, e consumer.Event[order], got receipt) error {
			if got.Order != e.ID {
				return fault.Permanent(fmt.Errorf("the receipt of %s is for %s", e.ID, got.Order))
			}
			return act(ctx, tx, name, e)
		},
		Options: s.options(),
	}
}

// calls are what a member in this process tells of its calls and its breaker.
type calls struct {
	t       *testing.T
	breaker chan record.BreakerInfo
	ended   chan record.CallInfo
	counted map[string]int // of ended, by outcome
}

// listen gives hooks that collect.
func (w *world) listen() (*calls, *record.Hooks) {
	c := &calls{
		t: w.t, breaker: make(chan record.BreakerInfo, 10_000),
		ended: make(chan record.CallInfo, 100_000), counted: map[string]int{},
	}
	return c, &record.Hooks{
		OnBreaker: func(i record.BreakerInfo) { c.breaker <- i },
		OnCall:    func(i record.CallInfo) { c.ended <- i },
	}
}

// opens waits until the breaker does.
func (c *calls) opens() {
	c.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case i := <-c.breaker:
			if i.To == record.BreakerOpen {
				return
			}
		case <-deadline:
			require.FailNow(c.t, "the breaker does not open")
		}
	}
}

// outcomes counts the calls that have ended so far.
func (c *calls) outcomes() map[string]int {
	for {
		select {
		case i := <-c.ended:
			c.counted[i.Outcome]++
		default:
			return c.counted
		}
	}
}

// attempts is the highest attempt that had an effect.
func (w *world) attempts() (n int) {
	w.t.Helper()
	require.NoError(w.t, w.pool.QueryRow(w.t.Context(), `select coalesce(max(attempt), 0) from effects`).Scan(&n))
	return n
}

package middleware_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

// settles is an inbox that knows nothing and effects everything, at no cost: what is to be seen stands around it.
type settles struct{}

func (settles) Look(_ context.Context, rs []*record.Record) ([]dedup.Answer, error) {
	return make([]dedup.Answer, len(rs)), nil
}

func (settles) Enter(context.Context, *record.Record) (leave func(), err error) {
	return func() {}, nil
}

func (settles) Run(_ context.Context, rs []*record.Record, _ dedup.Work) {
	for _, r := range rs {
		r.Settle(record.Effected)
	}
}

// BenchmarkCall is a record's call: alone, and over HTTP to a server on loopback in this process.
func BenchmarkCall(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "paid")
	}))
	b.Cleanup(server.Close)
	d, err := downstream.New(downstream.Config{Name: "payments", MaxConcurrent: 256})
	if err != nil {
		b.Fatal(err)
	}
	client := &http.Client{Transport: d.Transport(nil)}
	b.Cleanup(client.CloseIdleConnections)
	over := func(ctx context.Context, _ *record.Record) (any, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader("an order"))
		if err != nil {
			return nil, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		defer func() { _ = resp.Body.Close() }()
		_, err = io.Copy(io.Discard, resp.Body)
		return "paid", err
	}
	b.Run("nothing", func(b *testing.B) { called(b, d, paid) })
	b.Run("http", func(b *testing.B) { called(b, d, over) })
}

// called is b.N records in messages of 500, two at a time.
func called(b *testing.B, d *downstream.Dependency, do doFunc) {
	b.Helper()
	rt := &middleware.Route{
		Name: "charge", Group: "billing", Inbox: settles{}, Graves: newInbox(0, 1), DeadLetters: newTopic(), Batches: true,
		Repeatable: true, Call: &middleware.Call{Dependency: d, Do: do, Inbox: settles{}}, Hooks: &record.Hooks{},
	}
	layers, err := middleware.Stack(rt)
	if err != nil {
		b.Fatal(err)
	}
	h := compose(layers, nothing)
	c := newClaim(2, 500, nil)
	served := make(chan struct{})
	go func() {
		defer close(served)
		c.serve(h)
	}()
	rs := make([]*record.Record, b.N)
	for i := range rs {
		rs[i] = rec(int64(i), strconv.Itoa(i))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for len(rs) > 0 {
		n := min(1000, len(rs))
		c.add(rs[:n]...)
		c.idle()
		rs = rs[n:]
	}
	b.StopTimer()
	c.end(0)
	<-served
}

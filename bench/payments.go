package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/headrace/headrace/bench/internal/load"
)

// paymentsArg makes this binary the service that the calls bench calls, in a process of its own: it answers all
// contenders alike, and its work is in nobody's profile.
const paymentsArg = "payments"

// think is how long the service takes for a charge.
const think = 5 * time.Millisecond

// service is that process, seen from the bench.
type service struct {
	url string
}

// startPayments gives the service and how to end it.
func startPayments(ctx context.Context) (*service, func(), error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, self, paymentsArg)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	stop := func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return nil, nil, fmt.Errorf("the payment service said no address: %w", err)
	}
	return &service{url: strings.TrimSpace(line)}, stop, nil
}

// address is where the service answers, "" of none.
func (s *service) address() string {
	if s == nil {
		return ""
	}
	return s.url
}

// forget empties the service's books before a run; nil is no service.
func (s *service) forget(ctx context.Context) error {
	if s == nil {
		return nil
	}
	_, err := s.books(ctx, http.MethodDelete)
	return err
}

// verify says whether every order was charged. More often than once is allowed: a call is made at least once.
func (s *service) verify(ctx context.Context, orders int) error {
	if s == nil {
		return nil
	}
	b, err := s.books(ctx, http.MethodGet)
	if err != nil {
		return err
	}
	if b.Orders != orders {
		return fmt.Errorf("the payment service saw %d of %d orders, in %d calls", b.Orders, orders, b.Calls)
	}
	return nil
}

// books is how many orders the service has seen, and in how many calls.
type books struct {
	Orders int `json:"orders"`
	Calls  int `json:"calls"`
}

func (s *service) books(ctx context.Context, method string) (b books, err error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+"/books", http.NoBody)
	if err != nil {
		return b, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return b, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	return b, json.NewDecoder(resp.Body).Decode(&b)
}

// servePayments is the service's main.
func servePayments(ctx context.Context, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c := &charges{orders: map[int]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", c.charge)
	mux.HandleFunc("/books", c.books)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	fmt.Fprintln(out, "http://"+l.Addr().String())
	go func() { <-ctx.Done(); _ = server.Close() }()
	return server.Serve(l)
}

// charges is what the service remembers.
type charges struct {
	mu     sync.Mutex
	orders map[int]int // calls, by order
}

func (c *charges) charge(w http.ResponseWriter, r *http.Request) {
	var p load.Posting
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil || p.Order == 0 {
		http.Error(w, "no order", http.StatusBadRequest)
		return
	}
	thought := time.NewTimer(think)
	defer thought.Stop()
	select {
	case <-thought.C:
	case <-r.Context().Done():
		return
	}
	c.mu.Lock()
	c.orders[p.Order]++
	c.mu.Unlock()
	fmt.Fprintf(w, `{"id":"receipt of order %d"}`, p.Order)
}

func (c *charges) books(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Method == http.MethodDelete {
		clear(c.orders)
	}
	b := books{Orders: len(c.orders)}
	for _, n := range c.orders {
		b.Calls += n
	}
	_ = json.NewEncoder(w).Encode(b) // the bench hears of it
}

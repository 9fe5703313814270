package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"time"
)

// paymentsArg makes this binary the service that the calls bench calls, in a process of its own: it answers all
// contenders alike, and its work is in nobody's profile.
const paymentsArg = "payments"

// think is how long the service takes for a charge.
const think = 5 * time.Millisecond

// service is that process, seen from the bench: what contenders call, and its books.
type service struct {
	url, audit string
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
	s := &service{}
	if _, err := fmt.Fscanln(out, &s.url, &s.audit); err != nil {
		stop()
		return nil, nil, fmt.Errorf("the payment service said no address: %w", err)
	}
	return s, stop, nil
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
	req, err := http.NewRequestWithContext(ctx, method, s.audit, http.NoBody)
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

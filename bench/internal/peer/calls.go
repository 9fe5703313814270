package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/sony/gobreaker"

	"github.com/headrace/headrace/bench/internal/child"
	"github.com/headrace/headrace/bench/internal/load"
	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/downstream"
)

// most is how many connections are kept to a service: http.DefaultTransport keeps two to a host, and whoever calls more
// than two at a time would measure how fast the kernel dials.
const most = 256

func transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = most, most
	return t
}

// charge asks for one order's payment.
func charge(ctx context.Context, url string, p load.Posting) (*http.Request, error) {
	body := fmt.Sprintf(`{"order":%d,"amount":%d}`, p.Order, p.Amount)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return req, nil
}

// receipt is the service's answer.
type receipt struct {
	ID string `json:"id"`
}

func decodeReceipt(resp *http.Response, r *receipt) error {
	if err := json.NewDecoder(resp.Body).Decode(r); err != nil {
		return err
	}
	if r.ID == "" {
		return errors.New("the payment service gave no receipt")
	}
	return nil
}

// stockCall is Watermill's own way: its CircuitBreaker inside its Retry, and an http.Client in the handler.
func stockCall(ctx context.Context, s *child.Session) error {
	db, err := connect(ctx, s)
	if err != nil {
		return err
	}
	defer db.Close()
	client := &http.Client{Transport: transport(), Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	breaker := middleware.NewCircuitBreaker(gobreaker.Settings{Name: "payments"})
	return runStock(ctx, s, stockCallHandler(s, db, client), breaker.Middleware)
}

func stockCallHandler(s *child.Session, db *pgxpool.Pool, client *http.Client) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		s.First()
		var p load.Posting
		if err := json.Unmarshal(msg.Payload, &p); err != nil {
			return err
		}
		if err := ask(msg.Context(), client, s.Options.URL, p); err != nil {
			return err
		}
		err := postOnce(msg.Context(), db, msg.UUID, p)
		if err == nil {
			s.Done(1)
		}
		return err
	}
}

// ask is the call as one writes it by hand.
func ask(ctx context.Context, c *http.Client, url string, p load.Posting) error {
	req, err := charge(ctx, url, p)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the payment service answered %s", resp.Status)
	}
	return decodeReceipt(resp, new(receipt))
}

// headraceCall is the CallRoute of the README. Without a service it sleeps where it would call.
func headraceCall(ctx context.Context, s *child.Session) error {
	return callsAnd(ctx, s, func(r *callRoute) {
		r.Apply = func(ctx context.Context, tx pgx.Tx, e event, _ receipt) error {
			defer s.Done(1)
			return post(ctx, tx, e.Data)
		}
	})
}

// headraceCallQueue is one that queues what it writes.
func headraceCallQueue(ctx context.Context, s *child.Session) error {
	return callsAnd(ctx, s, func(r *callRoute) {
		r.Queue = func(b *pgx.Batch, e event, _ receipt) error {
			s.Done(1)
			b.Queue(updateAccount, e.Data.Amount, e.Data.Account)
			return nil
		}
	})
}

type callRoute = consumer.CallRoute[load.Posting, receipt]

func callsAnd(ctx context.Context, s *child.Session, writes func(*callRoute)) error {
	payments, err := downstream.New(downstream.Config{Name: "payments", MaxConcurrent: s.Options.InFlight})
	if err != nil {
		return err
	}
	client := &http.Client{Transport: payments.Transport(transport())}
	defer client.CloseIdleConnections()
	w := newWatch(s)
	route := callRoute{
		Name: "charge", Topic: s.Topic, Dependency: payments, Repeat: consumer.RepeatKeyed, Options: options(s),
		Call: func(ctx context.Context, e event) (r receipt, err error) {
			w.begin(e)
			if s.Options.URL == "" {
				return r, pause(ctx, s)
			}
			req, err := charge(ctx, s.Options.URL, e.Data)
			if err != nil {
				return r, err
			}
			resp, err := client.Do(req)
			if err != nil {
				return r, err
			}
			defer func() { _ = resp.Body.Close() }()       // it was read
			if err := downstream.Check(resp); err != nil { //nolint:contextcheck // the context is the request's
				return r, err
			}
			return r, decodeReceipt(resp, &r)
		},
	}
	writes(&route)
	return runHeadrace(ctx, s, w, route)
}

package downstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/google/uuid"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// A breaker around any client. After enough failures nothing is asked any more, until one call may probe.
func ExampleDependency_Do() {
	mail, err := downstream.New(downstream.Config{
		Name:    "mail",
		Breaker: downstream.BreakerConfig{MinRequests: 3},
		Hooks: &record.Hooks{OnBreaker: func(i record.BreakerInfo) {
			fmt.Println(i.Dependency, "is", i.To)
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	send := func(context.Context) error { return fault.Transient(errors.New("connection refused")) }
	for range 3 {
		fmt.Println(mail.Do(context.Background(), send))
	}
	err = mail.Do(context.Background(), send)
	var refused *fault.RefusedError
	fmt.Println(err, errors.As(err, &refused), "again in", refused.RetryAfter.Round(time.Second))
	// Output:
	// connection refused
	// connection refused
	// mail is open
	// connection refused
	// mail: circuit breaker open true again in 30s
}

// An http.Client that knows what becomes of its requests, and tries again what it may.
func ExampleDependency_Transport() {
	answers := []int{http.StatusServiceUnavailable, http.StatusOK, http.StatusPaymentRequired}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(answers[0])
		answers = answers[1:]
	}))
	defer server.Close()

	payments, err := downstream.New(downstream.Config{Name: "payments"})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: payments.Transport(nil)}
	defer client.CloseIdleConnections()
	charge := func() error {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPut, server.URL+"/charges/7", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close() //nolint:errcheck // it is read to its end by whoever wants it
		return downstream.Check(resp)
	}
	fmt.Println(charge(), "after the second try")
	err = charge()
	fmt.Println(err, "is", new(fault.Classifier).ClassifyCall(context.Background(), err).Class)
	// Output:
	// <nil> after the second try
	// payments: 402 Payment Required is permanent
}

// A proxy answers in the service's place, with a success that is none. Whether the charge was made is not known; what is
// read may be read again.
func ExampleDecodeJSON() {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "<!doctype html><title>Please log in</title>")
	}))
	defer proxy.Close()

	payments, err := downstream.New(downstream.Config{Name: "payments"})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: payments.Transport(nil)}
	defer client.CloseIdleConnections()
	type charge struct{ ID string }
	call := func(method string) (charge, error) {
		req, err := http.NewRequestWithContext(context.Background(), method, proxy.URL+"/charges/7", http.NoBody)
		if err != nil {
			return charge{}, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return charge{}, err
		}
		defer resp.Body.Close() //nolint:errcheck // DecodeJSON has closed it
		return downstream.DecodeJSON[charge](resp)
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		_, err := call(method)
		if method == http.MethodGet {
			fmt.Println(err)
		}
		fmt.Println(method, "is", new(fault.Classifier).ClassifyCall(context.Background(), err).Class)
	}
	// Output:
	// payments: 200 OK: the answer (text/html, 43 bytes) is no JSON, by byte 1: see whether something else answers in its place, a proxy perhaps
	// GET is transient
	// POST is ambiguous
}

// A service that takes no key, and can be asked what became of a transfer: what was carried out is not sent again.
func ExampleRun() {
	bank, err := downstream.New(downstream.Config{
		Name: "bank", Breaker: downstream.Critical(), Retry: downstream.RetryConfig{Base: time.Millisecond},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	transfers := map[string]string{}
	receipt, err := downstream.Run(context.Background(), bank, downstream.Operation[string]{
		Do: func(_ context.Context, t downstream.Try) (string, error) {
			fmt.Println("try", t.Number)
			transfers["t-7"] = "receipt 1"
			return "", fault.Ambiguous(errors.New("the answer was lost"))
		},
		Reconcile: func(context.Context) (string, bool, error) {
			receipt, found := transfers["t-7"]
			return receipt, found, nil
		},
	})
	fmt.Println(receipt, err)
	// Output:
	// try 1
	// receipt 1 <nil>
}

// Why something is tried again, or is not.
func ExamplePlan() {
	lost := downstream.Signal{
		Retry: downstream.RetryConfig{Attempts: 3, Base: 200 * time.Millisecond, Cap: 2 * time.Second},
		Fault: fault.Fault{Class: fault.ClassAmbiguous, Rule: "sent"}, Method: http.MethodPost,
		Attempt: 1, Left: 10 * time.Second, Random: 0.5,
	}
	fmt.Println(downstream.Plan(lost).Reason)
	lost.Repeatable = true // it carries a key
	fmt.Println(downstream.Plan(lost).Wait)
	lost.Attempt = 3
	fmt.Println(downstream.Plan(lost).Reason)
	// Output:
	// unknown_outcome
	// 100ms
	// max_attempts
}

// A read that may be a little old, and says so.
func ExampleFallback() {
	rates, err := downstream.New(downstream.Config{Name: "rates", Retry: downstream.RetryConfig{Attempts: 1}})
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := downstream.NewFallback(rates, downstream.FallbackConfig[string]{
		Operation: "rate",
		Default:   func(string) (string, bool) { return "1.00", true },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	get := func(ctx context.Context, currency string, answer string, failure error) {
		got, err := f.Get(ctx, currency, func(context.Context) (string, error) { return answer, failure })
		switch {
		case err != nil:
			fmt.Println(currency, err)
		case got.Degraded != nil:
			fmt.Println(currency, got.Value, "by", got.Degraded.Source)
		default:
			fmt.Println(currency, got.Value)
		}
	}
	ctx, down := context.Background(), fault.Transient(errors.New("connection refused"))
	get(ctx, "EUR", "1.08", nil)
	get(ctx, "EUR", "", down)
	get(ctx, "USD", "", down)
	get(downstream.WithoutFallback(ctx), "EUR", "", down)
	// Output:
	// EUR 1.08
	// EUR 1.08 by last_known
	// USD 1.00 by default
	// EUR connection refused
}

// On behalf of a record a key is always the same, and another one for each thing that is asked.
func ExampleIdempotencyKey() {
	ctx := downstream.WithPermit(context.Background(), downstream.Permit{ // what the layer that calls does
		Group: "billing", Route: "charge", ID: uuid.MustParse("0190b5a2-0000-7000-8000-000000000007"),
	})
	for _, operation := range []string{"reserve", "reserve", "charge"} {
		fmt.Println(downstream.IdempotencyKey(ctx, operation))
	}
	_, ok := downstream.IdempotencyKey(context.Background(), "charge")
	fmt.Println("outside of a route:", ok)
	// Output:
	// 29e922a6-5c8e-5a0e-9fda-0146885e3cb3 true
	// 29e922a6-5c8e-5a0e-9fda-0146885e3cb3 true
	// 32015d26-c340-50f1-8b4d-2e0540c19d8a true
	// outside of a route: false
}

// A handler that needs 2s to write what comes of its call does not begin one that would leave it less.
func ExampleBudget() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	call, end, err := downstream.Budget(ctx, 5*time.Second, 2*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer end()
	deadline, _ := call.Deadline()
	fmt.Println("the call has", time.Until(deadline).Round(time.Second))

	late, cancel := context.WithTimeout(ctx, 0)
	defer cancel()
	_, _, err = downstream.Budget(late, 5*time.Second, 2*time.Second)
	fmt.Println(err)
	// Output:
	// the call has 5s
	// no time left for the call: 0s left, 2s of it in reserve for what comes after; begin earlier, or raise the timeout around it
}

// What the layer that calls for a record does: a pass of the gate, a place, the breaker's leave, and the end.
func ExampleDependency_Begin() {
	payments, err := downstream.New(downstream.Config{Name: "payments"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	pass, ok := payments.Gate().Enter(ctx, nil)
	if !ok {
		return
	}
	defer pass.Release()
	release, ok := payments.Acquire(ctx, nil)
	if !ok {
		return
	}
	defer release()
	call, err := payments.BeginFor("charge", 15*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	charge := call.End(true, fault.Fault{Class: fault.ClassTransient})
	fmt.Println("free, because nobody was answered since:", charge == downstream.Free)
	// Output:
	// free, because nobody was answered since: true
}

package fault_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headrace/headrace/fault"
)

func ExampleClassifier_Classify() {
	var c fault.Classifier
	for _, err := range []error{
		errors.New("amount is negative"),
		fmt.Errorf("move money: %w", &pgconn.PgError{Code: "40P01"}),
		fmt.Errorf("move money: %w", &pgconn.PgError{Code: "57P01"}),
		&fault.StatusError{Code: http.StatusTooManyRequests, RetryAfter: 3 * time.Second},
		&fault.StatusError{Code: http.StatusBadGateway},
	} {
		f := c.Classify(context.Background(), err)
		fmt.Printf("%-11s by %q", f.Class, f.Rule)
		if f.RetryAfter > 0 {
			fmt.Printf(", not before %s", f.RetryAfter)
		}
		if f.Dependency != "" {
			fmt.Printf(", waits for the %s", f.Dependency)
		}
		fmt.Println()
	}
	// Output:
	// permanent   by "unknown"
	// transient   by "sqlstate 40P01"
	// unavailable by "sqlstate 57P01", waits for the database
	// transient   by "http 429", not before 3s
	// ambiguous   by "http 502"
}

// The deadline of an attempt means less to a transaction, which is undone, than to a call out, which is not.
func ExampleClassifier_ClassifyCall() {
	ctx, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()

	var c fault.Classifier
	fmt.Println("apply:", c.Classify(ctx, ctx.Err()).Class)
	fmt.Println("call: ", c.ClassifyCall(ctx, ctx.Err()).Class)
	// Output:
	// apply: transient
	// call:  ambiguous
}

// Orders may come before the customer that they name: then the foreign key fails, and tried again it will not.
func ExampleRule() {
	customerComesLater := func(err error) (fault.Fault, bool) {
		var pg *pgconn.PgError
		known := errors.As(err, &pg) && pg.ConstraintName == "orders_customer_fk"
		return fault.Fault{Class: fault.ClassTransient, RetryAfter: time.Second, Rule: "customer comes later"}, known
	}
	c := fault.Classifier{Rules: []fault.Rule{customerComesLater}}

	err := fmt.Errorf("insert order: %w", &pgconn.PgError{Code: "23503", ConstraintName: "orders_customer_fk"})
	fmt.Printf("%+v\n", c.Classify(context.Background(), err))
	// Output:
	// {Class:transient RetryAfter:1s Dependency: Rule:customer comes later}
}

// A verb speaks for all that it wraps, and the outermost counts.
func ExamplePermanent() {
	err := fault.Transient(errors.New("account is locked"))
	err = fmt.Errorf("charge order 7: %w", err)
	err = fault.Permanent(err)

	fmt.Println(err)
	fmt.Println(new(fault.Classifier).Classify(context.Background(), err).Class)
	// Output:
	// charge order 7: account is locked
	// permanent
}

// Of several failures the gravest decides, and an error that says nothing decides nothing.
func Example_join() {
	classify := func(errs ...error) fault.Class {
		return new(fault.Classifier).Classify(context.Background(), errors.Join(errs...)).Class
	}
	cleanup := errors.New("remove temporary file")
	fmt.Println(classify(fault.Transient(errors.New("cache")), cleanup))
	fmt.Println(classify(fault.Transient(errors.New("cache")), fault.Permanent(errors.New("amount"))))
	fmt.Println(classify(fault.Ambiguous(errors.New("charge")), fault.Permanent(errors.New("amount"))))
	// Output:
	// transient
	// permanent
	// ambiguous
}

func ExampleUnavailable() {
	err := fault.Unavailable(errors.New("the ledger is closed for the night"), "ledger")
	f := new(fault.Classifier).Classify(context.Background(), err)
	fmt.Println(f.Class, f.Dependency, "spends an attempt:", f.Class.Charged())
	// Output:
	// unavailable ledger spends an attempt: false
}

func ExampleSkip() {
	err := fmt.Errorf("order 7: %w", fault.Skip("a test order"))
	if skip, ok := fault.AsSkip(err); ok {
		fmt.Println(skip.Reason)
	}
	_, ok := fault.AsSkip(errors.Join(err, errors.New("write failed")))
	fmt.Println("hides a failure:", ok)
	// Output:
	// a test order
	// hides a failure: false
}

func ExamplePark() {
	err := fault.Park(errors.New("settlement opens tomorrow"), 12*time.Hour)
	if park, ok := fault.AsPark(err); ok {
		fmt.Println("again in", park.Delay, "because", park.Err)
	}
	// Output:
	// again in 12h0m0s because settlement opens tomorrow
}

func ExampleParseRetryAfter() {
	const date = "Sun, 01 Mar 2026 12:00:00 GMT" // the answer's own clock
	fmt.Println(fault.ParseRetryAfter("120", date, time.Now()))
	fmt.Println(fault.ParseRetryAfter("Sun, 01 Mar 2026 12:00:30 GMT", date, time.Now()))
	fmt.Println(fault.ParseRetryAfter("soon", date, time.Now()))
	// Output:
	// 2m0s
	// 30s
	// 0s
}

func ExampleRecovered() {
	handle := func() (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = fault.Recovered(v)
			}
		}()
		panic("account 7 has no owner")
	}
	err := handle()
	fmt.Println(err)
	fmt.Println(new(fault.Classifier).Classify(context.Background(), err).Rule)
	// Output:
	// panic: account 7 has no owner
	// panic
}

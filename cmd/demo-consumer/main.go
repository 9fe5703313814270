// Command demo-consumer shows what Headrace promises, in under a minute and with nothing but Go on the machine:
//
//	go run ./cmd/demo-consumer
//
// It charges 20,000 orders from a Kafka topic with a payment service, over HTTP, and posts them to accounts in Postgres.
// Meanwhile handlers fail, panic and give up, a producer repeats itself, bytes arrive broken; the payment service asks
// for patience, loses answers after charging, finds accounts without funds, and goes away until its breaker opens; the bank
// of some accounts is away for longer than their orders have attempts, so that these are parked; the database goes away; and a
// member joins the consumer group and leaves it. Each charged order is told in an event, by way of the outbox, from which a
// second consumer group writes notices, in the customer's language while the directory that knows it is there. Then it
// counts, from the topics, the tables and the payment service alone, what became of every order, and exits 0 only if
//
//   - records = effected + duplicate + skipped + dead + parked,
//   - the balances are what the effected orders add up to, and their postings are in order,
//   - no order was charged twice, and each effected one was charged once,
//   - each effected order has one event and one notice, and no other has,
//   - every dead order died of what is wrong with it, and none of an outage.
//
// What goes wrong with an order is a function of -seed and the order, so a run can be repeated. -transport
// watermill-kafka does all this under the stock Subscriber. -stay keeps everything up, and says how to look around and
// to replay what is dead.
//
// With -brokers and -dsn it does so on a real Kafka and a real Postgres, those of deploy/compose for example:
//
//	go run ./cmd/demo-consumer -brokers localhost:9092 -dsn 'postgres://headrace:headrace@localhost:5432/headrace?sslmode=disable'
//
// and -produce-only, -consume-only and -audit-only do its parts in processes of their own: kill the consuming one as
// often as you like, start it again, and the ledger still balances.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(code(os.Args[1:], os.Stderr))
}

// code is the exit code: 0 if the ledger balances, 1 if it does not or nothing could be run, 2 for a wrong command line.
func code(args []string, errs io.Writer) int {
	s, err := parse(args, errs)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(errs, "demo-consumer: %v\n  fix: 'demo-consumer -help' says what each flag takes\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := run(ctx, s, os.Stdout, errs); err != nil {
		fmt.Fprintf(errs, "demo-consumer: %v%s\n", err, fix(err, s))
		return 1
	}
	return 0
}

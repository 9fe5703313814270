// Command demo-consumer shows what Headrace promises, in under a minute and with nothing but Go on the machine:
//
//	go run ./cmd/demo-consumer
//
// It posts 20,000 orders from a Kafka topic to accounts in Postgres while handlers fail, panic and give up, a producer
// repeats itself, bytes arrive broken, the database goes away and a member joins the consumer group and leaves it.
// Then it counts, from the topics and the tables alone, what became of every order, and exits 0 only if each had its
// effect exactly once.
//
// With -brokers and -dsn it does so on a real Kafka and a real Postgres, and -produce-only, -consume-only and
// -audit-only do its parts in processes of their own: kill the consuming one as often as you like, start it again, and
// the ledger still balances.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(code(os.Args[1:]))
}

// code is the exit code: 0 if the ledger balances, 1 if it does not or nothing could be run, 2 for a wrong command line.
func code(args []string) int {
	s, err := parse(args, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo-consumer:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "demo-consumer:", err)
		return 1
	}
	return 0
}

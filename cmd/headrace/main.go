// Command headrace is what an operator of Headrace uses: it migrates the database, shows and replays dead letters, says
// that a record is dead which keeps others waiting, and sends what handlers have published.
//
//	headrace migrate up
//	headrace dlq ls     --brokers localhost:9092 --topic orders.dlq
//	headrace dlq show   --brokers localhost:9092 --topic orders.dlq 3/120
//	headrace dlq replay --brokers localhost:9092 --topic orders.dlq --reason exhausted --dry-run
//	headrace bury       --brokers localhost:9092 --group billing --route charge-order --at orders/3/120
//	headrace outbox run --brokers localhost:9092
//
// Results go to standard output, everything else to standard error, so that the output can be piped. The exit code is 0
// if all went well, 1 if something failed and 2 if the command line is wrong. Nothing that it prints holds a password.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for an orderly end; with the handler gone, a second one kills.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], process()))
}

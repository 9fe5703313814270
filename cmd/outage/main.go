// Command outage cuts a payment service off while records are charged by it, in each way that networks have, and says
// what that cost:
//
//	go run ./cmd/outage            # make outage
//	go run ./cmd/outage -cut 3s -kinds timeout,down -json
//
// Orders come at a steady rate to a consumer.CallRoute, which charges them over HTTP, through a Toxiproxy of this
// process, by a service that has package idempotency in front. Broker, Postgres, service and proxy are brought along. Each
// kind of outage has a topic, a consumer, a service and a proxy of its own, and all run side by side:
//
//	orders flow ─► cut ─► … ─► healed ─► first answer ─► all settled ─► counted
//
// What is counted comes from the topics, Postgres, pg_stat_activity and the service's book; what is timed, from the
// hooks. Each figure has a bound, which follows from the settings and stands beside it; exit code 1 says that one was
// passed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
)

func main() {
	zerolog.SetGlobalLevel(zerolog.Disabled) // Toxiproxy's: it tells of each connection that it breaks
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(code(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

var errPassed = errors.New("a bound was passed")

// code is the exit code: 0 if every bound holds, 1 if one does not or nothing could be run, 2 for a wrong command line.
func code(ctx context.Context, args []string, out, errs io.Writer) int {
	s, err := parse(args, errs)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(errs, "outage: %v\n  fix: 'outage -help' says what each flag takes\n", err)
		return 2
	}
	if err := run(ctx, s, out, errs); err != nil {
		fmt.Fprintf(errs, "outage: %v%s\n", err, fix(err))
		return 1
	}
	return 0
}

// fix is a line that says what to do about err, "" if nobody knows. Everything that is spoken to is brought along.
func fix(err error) string {
	if !errors.As(err, new(*net.OpError)) && !errors.As(err, new(*pgconn.ConnectError)) {
		return ""
	}
	return "\n  fix: what is built in has ended, or a port of this machine was taken: run it again"
}

// run cuts, counts and prints the report to out; everything else goes to live.
func run(ctx context.Context, s settings, out, live io.Writer) error {
	if s.json {
		live = io.Discard
	}
	w, err := open(ctx)
	if err != nil {
		return err
	}
	defer w.close()
	fmt.Fprintf(live, "%d orders/s for each of %d kinds of outage; after a while each is cut off for %s\n", s.rate, len(s.kinds), s.cut)
	phases, err := w.phases(ctx, s)
	if err != nil {
		return err
	}
	r := newReport(s, phases)
	if err := r.write(out, s.json); err != nil {
		return err
	}
	if !r.OK {
		return errPassed
	}
	return nil
}

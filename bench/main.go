package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/headrace/headrace/bench/internal/child"
	"github.com/headrace/headrace/bench/internal/peer"
	"github.com/headrace/headrace/bench/internal/result"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := act(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

// act is the driver, or what the driver has started this binary as.
func act(ctx context.Context, args []string) error {
	switch {
	case len(args) == 1 && args[0] == paymentsArg:
		return servePayments(ctx, os.Stdout)
	case len(args) == 1 && strings.HasPrefix(args[0], "{"):
		var spec child.Spec
		if err := json.Unmarshal([]byte(args[0]), &spec); err != nil {
			return err
		}
		// A Ctrl-C in the terminal reaches the children too; the driver ends them, by their input.
		return child.Serve(context.WithoutCancel(ctx), spec, os.Stdin, os.Stdout, peer.Run)
	}
	s, err := parse(args, os.Getenv)
	if err != nil {
		return err
	}
	return run(ctx, s)
}

// run runs the scenarios. What is measured is written after each, and said at the end whatever happened: a run is long.
func run(ctx context.Context, s settings) (err error) {
	b, stop, err := start(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	began := time.Now()
	fmt.Printf("%s, %s, %d processors; %d records a run, %d runs\n", runtime.Version(), runtime.GOOS, runtime.NumCPU(), s.records, s.rounds)
	for _, sc := range scenarios {
		if !s.runs(sc.name) {
			continue
		}
		fmt.Printf("\n%s: %s\n", sc.name, sc.asks)
		if err = sc.run(ctx, b); err != nil {
			err = fmt.Errorf("%s: %w", sc.name, err)
			break
		}
		result.Compare(b.results)
		if err = result.Update(s.out, began, b.results); err != nil {
			break
		}
	}
	result.Compare(b.results)
	return errors.Join(err, result.Print(os.Stdout, b.results), failed(b.results))
}

// failed says which contenders have no result that counts.
func failed(results []result.Result) error {
	var errs []error
	for _, r := range results {
		if !r.Verified {
			errs = append(errs, fmt.Errorf("%s, %s, %d partitions: %s", r.Scenario, r.Contender, r.Partitions, r.Error))
		}
	}
	return errors.Join(errs...)
}

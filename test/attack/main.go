package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/test/attack/lab"
	"github.com/headrace/headrace/test/attack/member"
)

// options are the command line.
type options struct {
	seed     uint64
	seconds  int
	scenario string
	runs     int
	rate     int
	keep     bool
	apart    time.Duration
	soak     int
	plot     string
}

func main() {
	if text := os.Getenv(member.Env); text != "" {
		os.Exit(member.Main(text))
	}
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "of the first run; each further one has the next")
	flag.IntVar(&o.seconds, "seconds", 60, "how long one scenario is attacked")
	flag.StringVar(&o.scenario, "scenario", "mixed", "scenarios, separated by commas")
	flag.IntVar(&o.runs, "runs", 1, "how often the scenarios are run")
	flag.IntVar(&o.rate, "rate", 60, "records a second of each of the producers")
	flag.BoolVar(&o.keep, "keep", false, "keep the logs of runs without violations too")
	flag.DurationVar(&o.apart, "apart", 0, "what lies between two faults of a kind at least, say 20s to see each recovered from")
	flag.IntVar(&o.soak, "soak", 0, "instead of scenarios, minutes of steady load")
	flag.StringVar(&o.plot, "plot", "soak.svg", "file for what a soak has seen")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	ok, err := o.run(ctx)
	if err != nil {
		slog.Error("attack", "err", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run runs all scenarios, and says whether none had violations.
func (o options) run(ctx context.Context) (ok bool, err error) {
	scenarios, err := scenariosOf(o.scenario)
	if err != nil {
		return false, err
	}
	if lacks := kafkatest.Missing(); lacks != "" {
		return false, fmt.Errorf("no real broker: %s", lacks)
	}
	slog.Info("starting a cluster of three nodes, and Postgres")
	l, err := lab.Open(ctx, lab.Config{Volume: o.soak == 0})
	if err != nil {
		return false, err
	}
	defer func() { _ = l.Close() }()
	if o.soak > 0 {
		return o.soaks(ctx, l)
	}
	ok = true
	for n := range o.runs {
		for _, sc := range scenarios {
			a := attack{
				lab: l, scenario: sc, seed: o.seed + uint64(n), lasts: time.Duration(o.seconds) * time.Second, rate: o.rate, keep: o.keep, apart: o.apart,
			}
			report, err := a.run(ctx)
			if err != nil {
				return false, fmt.Errorf("scenario %s, seed %d: %w", sc.name, a.seed, err)
			}
			ok = ok && len(report.Violations) == 0
			if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
				return false, err
			}
		}
	}
	return ok, nil
}

// soaks says whether a soak had no violations. Its rate is half the top rate, unless one was asked for.
func (o options) soaks(ctx context.Context, l *lab.Lab) (ok bool, err error) {
	k := soak{lab: l, seed: o.seed, lasts: time.Duration(o.soak) * time.Minute, plot: o.plot}
	report, err := k.run(ctx)
	if err != nil {
		return false, err
	}
	return len(report.Violations) == 0, json.NewEncoder(os.Stdout).Encode(report)
}

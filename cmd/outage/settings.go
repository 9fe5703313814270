package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/headrace/headrace/downstream"
)

// settings are the command line.
type settings struct {
	cut       time.Duration
	rate      int
	seed      uint64
	kinds     []kind
	slack     float64
	json      bool
	forgetful bool
}

// What the route has. The breaker is quicker than the default, so that outages of seconds open it too.
const (
	callTimeout = 2 * time.Second
	places      = 16 // calls at once
	attempts    = 5
	partitions  = 4
)

var breaker = downstream.BreakerConfig{MinRequests: 20, FailureRatio: 0.5, Window: 2 * callTimeout, OpenFor: time.Second}

func parse(args []string, usage io.Writer) (settings, error) {
	var s settings
	var names string
	fs := flag.NewFlagSet("outage", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // it would print every error, and all flags with it, before we do
	fs.DurationVar(&s.cut, "cut", 30*time.Second, "for how long the payment service is cut off")
	fs.IntVar(&s.rate, "rate", 50, "how many orders a second come, for each kind of outage")
	fs.Uint64Var(&s.seed, "seed", 1, "the same seed makes the same orders")
	fs.StringVar(&names, "kinds", kindNames(), "which kinds of outage")
	fs.Float64Var(&s.slack, "slack", 1, "what bounds of time are multiplied by, on a machine that is busy")
	fs.BoolVar(&s.json, "json", false, "print nothing but the report, as one JSON object")
	fs.BoolVar(&s.forgetful, "forgetful", false, "the payment service ignores idempotency keys: to see that it is noticed")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fs.SetOutput(usage)
		fmt.Fprint(usage, "outage cuts a payment service off under load, and checks what that cost. Flags, with one dash or two:\n")
		fs.PrintDefaults()
		return s, err
	case err != nil:
		return s, err
	}
	var err error
	if s.kinds, err = kindsOf(strings.Split(names, ",")); err != nil {
		return s, err
	}
	return s, s.validate(fs.NArg())
}

func (s settings) validate(rest int) error {
	switch {
	case rest > 0:
		return errors.New("no arguments, only flags")
	case s.cut < time.Second || s.rate < 1:
		return fmt.Errorf("-cut %s must be at least 1s, and -rate %d at least 1", s.cut, s.rate)
	case s.slack < 1:
		return fmt.Errorf("-slack %v must be at least 1", s.slack)
	}
	return nil
}

// slow is a bound of time, as this machine may have it.
func (s settings) slow(d time.Duration) time.Duration { return time.Duration(float64(d) * s.slack) }

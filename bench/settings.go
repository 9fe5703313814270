package main

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settings are the sizes of a run; the defaults are those of the figures in the README.
type settings struct {
	records int           // of a run
	rounds  int           // turns of each contender
	keys    int           // and accounts
	backlog int           // records of the memory scenario
	calls   int           // records of a run with calls at one partition
	load    time.Duration // of each load of the latency scenario
	chosen  []string      // scenarios, none is all
	field   []string      // contenders, by their names or the beginnings of them, none is all
	out     string        // results.json
	profile string        // directory for profiles of the contenders in Go
}

// parse takes the flags, whose defaults come from the environment.
func parse(args []string, env func(string) string) (s settings, err error) {
	number := func(name string, otherwise int) int {
		text := env(name)
		if text == "" {
			return otherwise
		}
		n, bad := strconv.Atoi(text)
		if bad != nil || n < 1 {
			err = fmt.Errorf("%s is %q, not a number above 0", name, text)
		}
		return n
	}
	text := func(name, otherwise string) string {
		if v := env(name); v != "" {
			return v
		}
		return otherwise
	}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.IntVar(&s.records, "records", number("BENCH_N", 100_000), "records of a run (BENCH_N)")
	f.IntVar(&s.rounds, "rounds", number("BENCH_RUNS", 3), "turns of each contender, the median counts (BENCH_RUNS)")
	f.IntVar(&s.keys, "keys", 10_000, "keys, and accounts")
	f.IntVar(&s.backlog, "backlog", number("BENCH_BACKLOG", 1_000_000), "records of the memory scenario (BENCH_BACKLOG)")
	f.IntVar(&s.calls, "calls", number("BENCH_CALLS", 2000), "records of a run with calls at 1 partition, at 8 four times as many (BENCH_CALLS)")
	f.DurationVar(&s.load, "load", time.Duration(number("BENCH_SECONDS", 10))*time.Second, "how long each load of the latency scenario lasts (BENCH_SECONDS)")
	only := f.String("only", env("BENCH_ONLY"), "scenarios and contenders, separated by commas; a contender also by the beginning of its name (BENCH_ONLY)")
	f.StringVar(&s.out, "out", text("BENCH_OUT", "results.json"), "file for the results (BENCH_OUT)")
	f.StringVar(&s.profile, "profile", "", "directory for profiles, of processor and heap, of each contender in Go: the last run's")
	if err != nil {
		return s, err
	}
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("%q is no flag", f.Arg(0))
	}
	return s, s.choose(*only)
}

// choose sets what runs.
func (s *settings) choose(only string) error {
	for _, word := range strings.Split(only, ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		switch {
		case isScenario(word):
			s.chosen = append(s.chosen, word)
		case slices.ContainsFunc(contenders(), func(c contender) bool { return called(c.name, word) }):
			s.field = append(s.field, word)
		default:
			return fmt.Errorf("there is no scenario or contender %q; scenarios: %s; contenders: %s", word, scenarioNames(), contenderNames())
		}
	}
	return nil
}

// runs says whether a scenario is part of the run.
func (s *settings) runs(scenario string) bool {
	return len(s.chosen) == 0 || slices.Contains(s.chosen, scenario)
}

// joins says whether a contender is part of the run.
func (s *settings) joins(contender string) bool {
	return len(s.field) == 0 || slices.ContainsFunc(s.field, func(word string) bool { return called(contender, word) })
}

// called says whether word is the contender's name, or its beginning up to the end of a part.
func called(contender, word string) bool {
	rest, found := strings.CutPrefix(contender, word)
	return found && (rest == "" || strings.ContainsAny(rest[:1], "-/"))
}

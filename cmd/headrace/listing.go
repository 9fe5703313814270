package main

import "github.com/spf13/pflag"

// defaultLimit of a table: more is nothing to read at night. JSON has none.
const defaultLimit = 100

// listing is what every list may be asked for.
type listing struct {
	json  bool
	limit int // 0 for all
}

// registerListing says with usage, in which `n` stands for the number, what the limit is of.
func (l *listing) registerListing(flags *pflag.FlagSet, usage string) {
	flags.IntVarP(&l.limit, "limit", "n", defaultLimit, usage+"; with --json all by default")
	flags.BoolVar(&l.json, "json", false, "print one JSON object a line")
}

// bound has JSON list all of the things unless a limit was given, and refuses one that is none.
func (l *listing) bound(flags *pflag.FlagSet, things string) error {
	switch {
	case l.limit < 0:
		return usagef("--limit %d is negative", l.limit).fix("use 0 for all " + things)
	case l.json && !flags.Changed("limit"):
		l.limit = 0
	}
	return nil
}

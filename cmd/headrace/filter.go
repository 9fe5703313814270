package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headrace/headrace/dlq"
)

// filterFlags say which letters are meant. ls, show and replay have the same ones, so that what was listed is what is
// replayed.
type filterFlags struct {
	reasons, sources, groups, routes, formats []string
	keys, ids, at                             []string
	since, until                              string
}

func (f *filterFlags) register(fs *pflag.FlagSet) {
	fs.StringSliceVar(&f.reasons, "reason", nil, "only letters of these `reasons`: "+strings.Join(reasons(), ", "))
	fs.StringSliceVar(&f.sources, "source", nil, "only letters from these source `topics`")
	fs.StringSliceVar(&f.groups, "group", nil, "only letters of these consumer `groups`")
	fs.StringSliceVar(&f.routes, "route", nil, "only letters of these `routes`")
	fs.StringArrayVar(&f.keys, "key", nil, "only letters with this record `key` (may be repeated)")
	fs.StringArrayVar(&f.ids, "id", nil, "only letters with this message `id` (may be repeated)")
	fs.StringArrayVar(&f.at, "at", nil, "only the letter at this `topic/partition/offset`, or of the record that was read there (may be repeated)")
	fs.StringVar(&f.since, "since", "", "only records that failed since then: an `age` (90m, 2h, 7d) or a time (2026-11-30T03:00:00Z)")
	fs.StringVar(&f.until, "until", "", "only records that failed before then: an `age` or a time")
	fs.StringSliceVar(&f.formats, "format", nil, "only letters in these `formats`: "+strings.Join(formats(), ", "))
}

// complete lets the shell complete the flags that have a closed list of values.
func (f *filterFlags) complete(cmd *cobra.Command) {
	for flag, values := range map[string][]string{"reason": reasons(), "format": formats()} {
		// It fails for a flag that does not exist, which the test that completes them would show.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

// filter is the predicate that the flags say, with ages counted from now.
func (f *filterFlags) filter(now time.Time) (dlq.Filter, error) {
	out := dlq.Filter{Sources: f.sources, Groups: f.groups, Routes: f.routes, Keys: f.keys, IDs: f.ids}
	for _, name := range f.reasons {
		if !slices.Contains(reasons(), name) {
			return out, usagef("--reason %q is not known", name).fix("use some of: " + strings.Join(reasons(), ", "))
		}
		out.Reasons = append(out.Reasons, dlq.Reason(name))
	}
	for _, name := range f.formats {
		if !slices.Contains(formats(), name) {
			return out, usagef("--format %q is not known", name).fix("use some of: " + strings.Join(formats(), ", "))
		}
		out.Formats = append(out.Formats, dlq.Format(name))
	}
	for _, place := range f.at {
		at, err := dlq.ParseCoordinates(place)
		if err != nil {
			return out, usagef("--at: %w", err).fix("write topic/partition/offset, as in orders/3/120")
		}
		out.At = append(out.At, at)
	}
	var err error
	if out.Since, err = parseTime("--since", f.since, now); err != nil {
		return out, err
	}
	if out.Until, err = parseTime("--until", f.until, now); err != nil {
		return out, err
	}
	if !out.Until.IsZero() && !out.Since.Before(out.Until) {
		return out, usagef("--since %s is not before --until %s: no letter is in between", f.since, f.until).
			fix("let --since be the older one, as in --since 3h --until 2h")
	}
	return out, nil
}

func reasons() []string {
	list := make([]string, len(dlq.Reasons))
	for i, r := range dlq.Reasons {
		list[i] = string(r)
	}
	return list
}

func formats() []string {
	list := make([]string, len(dlq.Formats))
	for i, f := range dlq.Formats {
		list[i] = string(f)
	}
	return list
}

// parseTime reads a point in time, or how long ago it was. "" is the zero time.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if age, ok := parseAge(text); ok {
		return now.Add(-age), nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usagef("%s %q is neither an age nor a time", flag, text).
		fix(fmt.Sprintf("write an age as in 90m, 2h or 7d, or a time as in %s", now.UTC().Format(time.RFC3339)))
}

// parseAge knows days beside time.ParseDuration's units.
func parseAge(text string) (time.Duration, bool) {
	if days, err := strconv.ParseUint(strings.TrimSuffix(text, "d"), 10, 16); err == nil && strings.HasSuffix(text, "d") {
		return time.Duration(days) * 24 * time.Hour, true
	}
	age, err := time.ParseDuration(text)
	return age, err == nil && age >= 0
}

// parsePlace reads "partition/offset".
func parsePlace(text string) (partition int32, offset int64, ok bool) {
	first, second, found := strings.Cut(text, "/")
	p, err := strconv.ParseUint(first, 10, 31)
	o, err2 := strconv.ParseUint(second, 10, 63)
	return int32(p), int64(o), found && err == nil && err2 == nil //nolint:gosec // 31 and 63 bits fit
}

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/dlq"
)

// defaultMaxReplays is the library's own default, for the help.
const defaultMaxReplays = 10

type replayFlags struct {
	lettersFlags
	asSource, asGroup, asRoute       string
	toRoute                          string
	states                           []string
	dsn                              dsnFlag
	place                            string
	dryRun, yes, newID, createTopics bool
	maxReplays                       int
}

func newReplay(s streams) *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay [partition/offset]",
		Short: "Give dead letters back to the routes that failed",
		Long: `Sends the letters that match to the replay topics of the consumer groups that failed, <source>.<group>.replay, where
only the route that each letter names takes it up: with its key, value, headers and identity. Letters stay in the dead
letter topic. What stands there at the start is replayed, not what comes while it runs.

Running it twice, two at once, or killing it and running it again is harmless: the inbox knows every record by its
identity and lets it have its effect once; what had its effect before settles as a duplicate. --state dead leaves that
out: it asks the database, and sends only what is still dead (see 'headrace dlq ls --help' for the states).

The exception is --new-id: an id_conflict letter came with the id of another record that was there first and counts.
--new-id runs it as a record of its own, with ` + beside + `.

More than one letter wants a yes: on a terminal you are asked, elsewhere add --yes. A single letter named by its place
or by one --at or --id needs none. Letters of other systems (Watermill, Spring, Connect) do not say for whom they are:
name it with --as-group and --as-route.

A route that was renamed is another one, and nobody takes up the letters of its old name: --route old --to-route new
sends them to the new one. A record that the old route has effected and the new one has not would be effected again, so
it is for what is dead. With --dsn a letter for a route that the database has never seen is not sent.

The exit code is 1 if a letter could not be sent; the others were.`,
		Example: `  headrace dlq replay --brokers kafka:9092 --topic orders.dlq 3/120
  headrace dlq replay --topic orders.dlq --reason exhausted --since 2h --dry-run
  headrace dlq replay --topic orders.dlq --reason exhausted --since 2h --yes
  headrace dlq replay --topic poison --format watermill --as-source orders --as-group billing --as-route charge-order --yes`,
		Args: onePlace,
		RunE: func(cmd *cobra.Command, args []string) error { return f.replay(cmd.Context(), s, args) },
	}
	f.register(cmd)
	fs := cmd.Flags()
	fs.BoolVar(&f.dryRun, "dry-run", false, "send nothing, tell what would be sent")
	fs.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	fs.StringVar(&f.asGroup, "as-group", "", "consumer `group` of letters that name none: another system's")
	fs.StringVar(&f.asRoute, "as-route", "", "`route` of letters that name none")
	fs.StringVar(&f.toRoute, "to-route", "", "send the letters of the one --route to this `route` instead: it was renamed")
	fs.StringVar(&f.asSource, "as-source", "", "source `topic` of letters that name none")
	fs.StringSliceVar(&f.states, "state", nil, "only letters whose record is in one of these `states`, by the database: "+strings.Join(states(), ", "))
	f.dsn.register(fs, "the consumer's database, for --state and to know its routes")
	fs.BoolVar(&f.newID, "new-id", false, "replay id_conflict letters too, as records of their own: "+beside+"; without it they are skipped")
	fs.BoolVar(&f.createTopics, "create-topic", false, "create a replay topic that does not exist, as the consumer does at its start")
	fs.IntVar(&f.maxReplays, "max-replays", defaultMaxReplays, "skip records that were replayed this many `times`")
	f.finish(cmd)
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (f *replayFlags) replay(ctx context.Context, s streams, args []string) error {
	cfg, err := f.check(s, args)
	if err != nil {
		return err
	}
	if err := reach(ctx, cfg.Client); err != nil {
		return err
	}
	var before *survey
	if f.asks() || f.asksInbox() {
		if before, err = f.look(ctx, s, cfg); err != nil {
			return err
		}
		if text := f.strange(before.snapshot); text != "" {
			return f.refuse(text)
		}
		cfg.Ends = before.snapshot.Ends
		if err := f.confirm(ctx, s, before); err != nil {
			return err
		}
	}
	return f.send(ctx, s, cfg, before)
}

// check looks at the flags; it asks nothing of the network.
func (f *replayFlags) check(s streams, args []string) (dlq.ReadConfig, error) {
	if f.maxReplays < 1 {
		return dlq.ReadConfig{}, usagef("--max-replays %d is below 1", f.maxReplays).fix("leave it out, or let a record be replayed at least once")
	}
	if f.toRoute != "" && len(f.filter.routes) != 1 {
		return dlq.ReadConfig{}, usagef("--to-route %q wants one --route, whose letters are meant", f.toRoute).fix("name the old route, as in --route old-name --to-route " + f.toRoute)
	}
	for _, state := range f.states {
		if !slices.Contains(states(), state) {
			return dlq.ReadConfig{}, usagef("--state %q is not known", state).fix("use some of: " + strings.Join(states(), ", "))
		}
	}
	f.place = strings.Join(args, "")
	cfg, err := f.read(s, f.place, f.now)
	if err != nil {
		return cfg, err
	}
	if !f.mayAsk(s) && !single(cfg.Filter) {
		return cfg, usagef("replay wants a yes unless one letter is named, and there is no terminal to ask on").
			fix("look first with --dry-run, then add --yes; or name one letter, as in '" + f.command("replay", "3/120") + "'")
	}
	return cfg, nil
}

// refuse is for a topic without a single dead letter: its records would be handled as if they had died.
func (f *replayFlags) refuse(text string) error {
	return usagef("nothing was replayed: %s", text).fix(f.elsewhere() + "; if its records are to be replayed as they are, add --format unknown")
}

// mayAsk says that nothing stands in the way of a mass replay: it is none, it was agreed to, or somebody can be asked.
func (f *replayFlags) mayAsk(s streams) bool { return f.yes || f.dryRun || s.inTerminal }

// single says whether a filter names one letter.
func single(f dlq.Filter) bool { return len(f.At) == 1 || len(f.IDs) == 1 }

// send replays and tells of it.
func (f *replayFlags) send(ctx context.Context, s streams, cfg dlq.ReadConfig, before *survey) error {
	tell := newTeller(f, s, before)
	replay := dlq.ReplayConfig{
		Read: cfg, Source: f.asSource, Group: f.asGroup, Route: f.asRoute, ToRoute: f.toRoute,
		DryRun: f.dryRun, NewID: f.newID, Create: f.createTopics, MaxReplays: f.maxReplays,
		Each: tell.each,
	}
	if len(f.states) > 0 {
		replay.Skip = f.skip(before)
	}
	if f.asksInbox() {
		pool, closes, err := f.dsn.open(ctx, s)
		if err != nil {
			return err
		}
		defer closes()
		replay.Known = dlq.Directory(pool)
	}
	sum, err := dlq.Replay(ctx, replay)
	tell.done()
	if text := f.strange(sum.Snapshot); err == nil && text != "" {
		return f.refuse(text)
	}
	if f.dryRun && sum.Matched > 0 {
		fmt.Fprintln(s.out) // between the letters and their sum
	}
	if err != nil && sum.Matched == 0 && ctx.Err() == nil {
		return topicError(f.topic, err)
	}
	printSummary(s, f, sum)
	f.notes(s, sum, tell)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintf(s.err, "stopped: %v. Run the same command again for the rest; what was sent is not done twice.\n", context.Cause(ctx))
		return errReported
	case err != nil:
		return topicError(f.topic, fmt.Errorf("ended early: %w", err))
	case sum.Failed > 0:
		return errReported
	}
	return nil
}

// printSummary says what became of the letters, a line each.
func printSummary(s streams, f *replayFlags, sum dlq.Summary) {
	if sum.Matched == 0 {
		fmt.Fprintln(s.err, noneMatches(f.topic, sum.Snapshot))
		return
	}
	sent := "sent"
	if f.dryRun {
		sent = "would send"
	}
	t := table{header: []string{"matched", fmt.Sprint(sum.Matched), ""}, right: map[string]bool{fmt.Sprint(sum.Matched): true}}
	t.add(sent, fmt.Sprint(sum.Sent), counts(sum.ByTopic, "to %s"))
	t.add("skipped", fmt.Sprint(total(sum.Skipped)), counts(sum.Skipped, "%s"))
	t.add("failed", fmt.Sprint(sum.Failed), unconfirmed(sum.Unconfirmed))
	_ = t.write(s.out, s.width) // to a terminal or a buffer: there is nobody to tell
}

// notes say what the numbers do not: what to do about letters that were left out, and what those come to that were not.
func (f *replayFlags) notes(s streams, sum dlq.Summary, tell *teller) {
	if n := sum.Skipped[dlq.SkipIDConflict]; n > 0 {
		fmt.Fprintf(s.err, "%s with the id of another record that was there first and counts; see with\n  %s\n", plural(n, "letter"),
			f.command("ls", "--reason id_conflict")+typed(f.flags, filterNames))
		fmt.Fprintf(s.err, "if a second effect is meant beside the one that counts (a second charge, a second posting), replay with\n  %s\n", f.anew(s))
	}
	if n := sum.Skipped[dlq.SkipTooOften]; n > 0 {
		fmt.Fprintf(s.err, "%s replayed %d times or more already: find out why they die, then raise --max-replays\n", plural(n, "letter"), f.maxReplays)
	}
	if n := sum.Skipped[dlq.SkipNoLetter]; n > 0 {
		fmt.Fprintf(s.err, "%s of no known format: --format unknown replays such too\n", plural(n, "record"))
	}
	if tell.anew > 0 {
		fmt.Fprintf(s.err, "%s under a new id: %s\n", plural(tell.anew, "letter"), secondEffect(tell.anew))
	}
	switch {
	case tell.ended > 0:
		fmt.Fprintf(s.err, "%d of the records had their end before: they settle as duplicates, without another effect; --state dead leaves them out\n", tell.ended)
	case len(f.states) == 0 && f.dsn.value == "" && sum.Sent > 1:
		fmt.Fprintln(s.err, "a record that had its effect before settles as a duplicate, without another; --state dead leaves such out")
	}
}

// anew is the command that replays the same letters with --new-id. Where nobody can be asked it has its yes.
func (f *replayFlags) anew(s streams) string {
	line := f.command("replay", "--reason id_conflict --new-id") + typed(f.flags, slices.Concat(filterNames, []string{"to-route", "max-replays", "create-topic"}))
	if f.place != "" {
		line += " " + f.place
	}
	if !s.inTerminal && f.place == "" {
		line += " --yes"
	}
	return line
}

func unconfirmed(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d unconfirmed: they may have arrived, and may be replayed again", n)
}

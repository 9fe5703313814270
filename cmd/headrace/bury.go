package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// saidSo is what a dead row says where the operator said nothing.
const saidSo = "an operator said so"

type buryFlags struct {
	kafka        kafkaFlags
	dsn          dsnFlag
	group, route string
	at, id, why  string
	dryRun, yes  bool
	flags        *pflag.FlagSet
	// place is what at says, origin where that record was first read: another place if it was replayed since.
	place, origin dlq.Coordinates
}

func newBury(s streams) *cobra.Command {
	var f buryFlags
	cmd := &cobra.Command{
		Use:        "bury",
		SuggestFor: []string{"dead", "kill"},
		Short:      "Say that one record is dead, so that its partition goes on",
		Long: `Says that a record is dead for one route, reason manual: for a record that fails for ever, is never charged for it, and
keeps its key or its partition waiting (the report not_corroborated names it), or that must be out of the way now.

It writes that into the inbox, in the consumer's database, and nothing else. When the consumer next tries the record,
within seconds as a rule, or reads it after its next start, it does not run it: it writes its dead letter and goes on. A
record that waits for an open breaker, a long Retry-After or the flood guard is tried when it is its turn there.

A record that the route has dealt with is left as it is, and the exit code is 1. If its handler runs at this moment that
is waited for, five seconds at most. A call out that is under way is not undone: look in the other system.

This cannot be taken back; but the dead letter can be replayed, like any other.`,
		Example: `  headrace bury --group billing --route charge-order --at orders/3/120 --dry-run
  headrace bury --group billing --route charge-order --at orders/3/120 --why INC-4711 --yes
  headrace dlq replay --topic orders.dlq --at orders/3/120`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), s) },
	}
	f.register(cmd)
	return cmd
}

func (f *buryFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.flags = fs
	fs.SortFlags = false // the important ones first
	fs.StringVar(&f.at, "at", "", "the record at this `topic/partition/offset` (required)")
	fs.StringVarP(&f.group, "group", "g", "", "consumer `group` of the route (required)")
	fs.StringVar(&f.route, "route", "", "`route` for which it is dead (required)")
	fs.StringVar(&f.id, "id", "", "the record's `id`, for a route with an Identity of its own; by default it is found as the routes without one do")
	fs.StringVar(&f.why, "why", saidSo, "what the dead letter says, as its error's `text`")
	fs.BoolVar(&f.dryRun, "dry-run", false, "write nothing, tell what would be done")
	fs.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	f.dsn.register(fs, "the consumer's database")
	f.kafka.register(fs)
}

// check looks at the flags; it asks nothing of the network.
func (f *buryFlags) check(s streams) (err error) {
	for _, required := range []struct{ name, value, example string }{
		{"--at", f.at, "orders/3/120"}, {"--group", f.group, "billing"}, {"--route", f.route, "charge-order"},
	} {
		if required.value == "" {
			return usagef("no %s", required.name).fix("add it, as in " + required.name + " " + required.example)
		}
	}
	if f.place, err = dlq.ParseCoordinates(f.at); err != nil {
		return usagef("--at: %w", err).fix("write topic/partition/offset, as in orders/3/120")
	}
	if !f.yes && !f.dryRun && !s.inTerminal {
		return usagef("bury wants a yes, and there is no terminal to ask on").fix("look first with --dry-run, then add --yes")
	}
	return nil
}

func (f *buryFlags) run(ctx context.Context, s streams) error {
	if err := f.check(s); err != nil {
		return err
	}
	client, err := f.kafka.config(s)
	if err != nil {
		return err
	}
	pool, closes, err := f.dsn.open(ctx, s)
	if err != nil {
		return err
	}
	defer closes()
	to, err := dedup.FindConsumer(ctx, pool, f.group, f.route)
	if err != nil {
		return err
	}
	r, err := f.record(ctx, client)
	if err != nil {
		return err
	}
	if err := f.notParked(ctx, pool, r); err != nil {
		return err
	}
	if err := f.look(ctx, s, client, to, r); err != nil {
		return err
	}
	f.describe(s, r)
	if f.dryRun {
		fmt.Fprintln(s.out, "would be dead: --dry-run wrote nothing")
		return nil
	}
	if err := f.confirm(ctx, s); err != nil {
		return err
	}
	return f.bury(ctx, s, to, r)
}

// record reads the record and gives it the identity by which the route knows it.
func (f *buryFlags) record(ctx context.Context, client kafka.ClientConfig) (*record.Record, error) {
	if err := reach(ctx, client); err != nil {
		return nil, err
	}
	r, err := dlq.ReadAt(ctx, client, f.place)
	if errors.Is(err, kafka.ErrUnknownTopic) {
		return nil, &failure{err: fmt.Errorf("topic %q does not exist", f.place.Topic), hint: "check --at and --brokers"}
	}
	if err != nil {
		return nil, err
	}
	f.origin = f.place
	if env, headers, ok := dlq.Decode(r.Headers); ok && f.place.Topic == dlq.ReplayTopic(env.Origin.Topic, f.group) {
		return r, f.identifyReplay(r, env, headers)
	}
	return r, f.identify(r)
}

func (f *buryFlags) identify(r *record.Record) error {
	if f.id != "" {
		if err := dedup.Identify(r, f.given); err != nil {
			return usagef("--id: %w", err).fix("take it from the report's line, or leave --id out")
		}
		return nil
	}
	// An identity that cannot be read leaves the record's place, and by that the route knows it too.
	_ = dedup.Identify(r, dedup.DefaultIdentity()...)
	return nil
}

func (f *buryFlags) given(*record.Record) (string, bool, error) { return f.id, true, nil }

// identifyReplay is for a dead letter that was replayed and is stuck again.
func (f *buryFlags) identifyReplay(r *record.Record, env dlq.Envelope, headers []record.Header) error {
	if env.Group != f.group || env.Route != f.route {
		return usagef("the letter at %s is one of route %q of group %q", f.place, env.Route, env.Group).fix("check --at, --group and --route")
	}
	r.Replay, r.Letter, r.Headers, f.origin = true, &env, headers, env.Origin
	of := dedup.ReplayOf{
		ID: env.ID, Key: env.MessageID, TopicID: env.TopicID, Partition: env.Origin.Partition, Offset: env.Origin.Offset,
	}
	if f.id != "" {
		of.ID, of.Key = f.id, dedup.KeyOf(f.id)
	}
	_ = dedup.IdentifyReplay(r, of, dedup.DefaultIdentity()...)
	return nil
}

// notParked refuses a record that nobody reads from its topic any more.
func (f *buryFlags) notParked(ctx context.Context, pool *pgxpool.Pool, r *record.Record) error {
	parked, err := parking.IsParked(ctx, pool, f.group, f.route, r)
	if err != nil || !parked {
		return err
	}
	return &failure{
		err:  fmt.Errorf("nothing was changed: %s is parked", f.place),
		hint: "say it of the parked record: 'headrace parked dead " + quoted(f.place.String()) + typed(f.flags, []string{"group", "route", "why"}) + "'",
	}
}

// look asks whether there is anything to bury.
func (f *buryFlags) look(ctx context.Context, s streams, client kafka.ClientConfig, to *dedup.Consumer, r *record.Record) error {
	answer, grave, err := to.Look(ctx, r)
	if err != nil {
		return err
	}
	if answer != dedup.Fresh && answer != dedup.DeadReplay {
		return f.known(answer, grave)
	}
	return f.passed(ctx, s, client, r)
}

// known says why a record is not buried that the route has dealt with, or will.
func (f *buryFlags) known(answer dedup.Answer, grave dedup.Grave) error {
	said, hint := "the inbox answers "+answer.String(), ""
	switch answer {
	case dedup.Own:
		said = "the route has effected it"
	case dedup.OwnSkipped:
		said = "the route has skipped it"
	case dedup.Duplicate:
		said = "another record with its id was dealt with, so the route settles it as a duplicate by itself"
	case dedup.IDConflict:
		said = "another record with its id and other bytes was dealt with, so the route makes it a dead letter by itself (id_conflict)"
		hint = "if the route has an Identity of its own, name the record's id with --id"
	case dedup.DeadOwn:
		said = fmt.Sprintf("it is dead already (%s: %s)", grave.Reason, grave.Err)
		hint = "see its letter with '" + f.letter() + "', once the consumer has come to it"
	case dedup.Fresh, dedup.DeadReplay, dedup.Buried, dedup.Blocked:
	}
	return &failure{err: fmt.Errorf("nothing was changed: %s: %s", f.place, said), hint: hint}
}

// letter lists the record's letter.
func (f *buryFlags) letter() string {
	return "headrace dlq ls" + typed(f.flags, clusterFlags) + " --topic " + dlq.DefaultTopic(f.origin.Topic) + " --at " + f.origin.String()
}

// passed refuses a record that the consumer group will not read again: its row would wait for nobody, and says as a rule
// that the id is not the one by which the route knows it.
func (f *buryFlags) passed(ctx context.Context, s streams, client kafka.ClientConfig, r *record.Record) error {
	admin, err := kafka.NewAdmin(client)
	if err != nil {
		return err
	}
	defer admin.Close()
	within, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	at, ok, err := admin.Committed(within, f.group, f.place.Topic, f.place.Partition)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		fmt.Fprintln(s.err, "note: nobody could tell whether the group has passed the record: "+safe(s, err.Error()))
	case !ok:
		fmt.Fprintf(s.err, "note: group %s has committed nothing of %s/%d yet: see that it reads the topic\n",
			dlq.Escape([]byte(f.group), maxCell), f.place.Topic, f.place.Partition)
	case at > f.place.Offset:
		return &failure{
			err: fmt.Errorf("nothing was changed: group %s has passed %s, it goes on at offset %d, and its inbox does not know the id %s",
				f.group, f.place, at, dlq.Escape([]byte(r.Identity.ID), maxCell)),
			hint: "check --at and --route; if the route has an Identity of its own, name the record's id with --id",
		}
	}
	return nil
}

// describe tells which record it is.
func (f *buryFlags) describe(s streams, r *record.Record) {
	line := func(name, value string) { fmt.Fprintf(s.out, "%-7s %s\n", name, value) }
	size := "no value"
	if r.Value != nil {
		size = plural(int64(len(r.Value)), "byte")
	}
	line("record", f.place.String()+", written "+momentOrNone(r.Timestamp)+", "+size)
	if r.Key != nil {
		line("key", dlq.Preview(r.Key, maxCell))
	}
	line("id", dlq.Preview([]byte(r.Identity.ID), maxCell))
	line("route", strconv.Quote(f.route)+" of group "+strconv.Quote(f.group))
	line("reason", string(dlq.Manual)+": "+dlq.Preview([]byte(f.text()), maxMessage))
}

// text is what the dead row says.
func (f *buryFlags) text() string { return whyOf(f.why) }

// whyOf is what an operator says, without what looks like a secret.
func whyOf(why string) string {
	if why == "" {
		return saidSo
	}
	return dlq.Message(errors.New(why))
}

func (f *buryFlags) confirm(ctx context.Context, s streams) error {
	if f.yes {
		return nil
	}
	fmt.Fprintf(s.err, "Is %s dead for this route? Only a replay of its letter can undo it. [y/N] ", f.place)
	return agreed(ctx, s, "nothing was changed")
}

func (f *buryFlags) bury(ctx context.Context, s streams, to *dedup.Consumer, r *record.Record) error {
	said, err := to.Bury(ctx, r, dedup.Grave{Reason: string(dlq.Manual), Err: f.text()})
	switch {
	case err != nil && new(fault.Classifier).Classify(ctx, err).Class == fault.ClassBusy:
		return &failure{
			err:  fmt.Errorf("nothing was changed: the route is handling %s at this moment", f.place),
			hint: "run the command again",
		}
	case err != nil:
		return &failure{err: err, hint: "whether it was written is not known; running the command again is safe"}
	case said != dedup.Buried:
		_, grave, err := to.Look(ctx, r)
		if err != nil {
			return err
		}
		return f.known(said, grave)
	}
	fmt.Fprintln(s.out, "dead: the consumer writes its letter when it next comes to it; see it with '"+f.letter()+"'")
	return nil
}

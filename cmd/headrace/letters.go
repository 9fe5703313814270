package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/kafka"
)

func newDLQ(s streams) *cobra.Command {
	return group(&cobra.Command{
		Use:   "dlq",
		Short: "Look at dead letters and replay them",
		Long: `A dead letter is a record that a route could not handle, kept whole in a topic of its own, <source>.dlq by default.
'ls' lists letters, 'show' shows one, 'replay' gives them back to the routes that failed. All three take the same
filters, so list first and replay what you saw. The letters of Watermill's PoisonQueue, of Spring Kafka and of Kafka
Connect are read too.`,
		Example: `  headrace dlq ls --brokers kafka:9092 --topic orders.dlq
  headrace dlq show --brokers kafka:9092 --topic orders.dlq 3/120
  headrace dlq replay --brokers kafka:9092 --topic orders.dlq --at orders/3/917`,
	}, newList(s), newShow(s), newReplay(s))
}

// lettersFlags say which letters of which topic of which cluster.
type lettersFlags struct {
	kafka  kafkaFlags
	topic  string
	filter filterFlags
	flags  *pflag.FlagSet
}

func (f *lettersFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.flags = fs
	fs.SortFlags = false // the important ones first
	fs.StringVarP(&f.topic, "topic", "t", "", "dead letter `topic`, as in orders.dlq (required)")
	f.filter.register(fs)
	f.filter.complete(cmd)
}

// finish registers the flags that come last in the help.
func (f *lettersFlags) finish(cmd *cobra.Command) { f.kafka.register(cmd.Flags()) }

// command is one for the same topic of the same cluster, that can be typed as it is.
func (f *lettersFlags) command(what, rest string) string {
	return "headrace dlq " + what + typed(f.flags, clusterFlags) + " " + rest
}

// strange says that nothing in a topic is a dead letter, "" where something is, or where that is what was asked for.
func (f *lettersFlags) strange(s dlq.Snapshot) string {
	if s.Unknown == 0 || s.Unknown < s.Records-s.Repeated || slices.Contains(f.filter.formats, string(dlq.FormatUnknown)) {
		return ""
	}
	return fmt.Sprintf("%d of %s of %q are no dead letters", s.Unknown, plural(s.Records, "record"), f.topic)
}

// elsewhere says where the dead letters may be.
func (f *lettersFlags) elsewhere() string {
	letters := dlq.DefaultTopic(f.topic)
	if strings.HasSuffix(f.topic, dlq.Suffix) {
		return "check --topic"
	}
	return "does " + quoted(letters) + " exist? Its dead letters go there by default: --topic " + quoted(letters)
}

// noteStrange says it on the side.
func (f *lettersFlags) noteStrange(s streams, seen dlq.Snapshot) {
	if text := f.strange(seen); text != "" {
		fmt.Fprintf(s.err, "note: %s: %s\n", text, f.elsewhere())
	}
}

// read checks the flags; it asks nothing of the network.
func (f *lettersFlags) read(s streams, place string, now func() (dlq.Filter, error)) (dlq.ReadConfig, error) {
	if f.topic == "" {
		return dlq.ReadConfig{}, usagef("no dead letter topic").fix("add --topic, as in --topic orders.dlq")
	}
	filter, err := now()
	if err != nil {
		return dlq.ReadConfig{}, err
	}
	if place != "" {
		at, ok := f.place(place)
		if !ok {
			return dlq.ReadConfig{}, usagef("%q is no partition/offset of a letter", place).fix("write it as ls shows it under LETTER, as in 3/120")
		}
		filter.At = append(filter.At, at)
	}
	client, err := f.kafka.config(s)
	return dlq.ReadConfig{Client: client, Topic: f.topic, Filter: filter}, err
}

// place is where a letter stands, written with its topic or without.
func (f *lettersFlags) place(text string) (dlq.Coordinates, bool) {
	partition, offset, ok := parsePlace(strings.TrimPrefix(text, f.topic+"/"))
	return dlq.Coordinates{Topic: f.topic, Partition: partition, Offset: offset}, ok
}

// row is what a list keeps of a letter: its value stays in the topic.
type row struct {
	e *dlq.Entry
	// size is the value's, -1 for none.
	size    int
	outcome dlq.Outcome
}

func newRow(e *dlq.Entry) row {
	slim := *e
	size := len(e.Value)
	if e.Value == nil {
		size = -1
	}
	slim.Key, slim.Value, slim.Headers = bytes.Clone(e.Key), nil, nil
	return row{e: &slim, size: size}
}

// newest sorts rows and keeps the n newest, all for 0.
func newest(rows []row, n int) []row {
	slices.SortStableFunc(rows, func(a, b row) int { return a.e.Failed().Compare(b.e.Failed()) })
	if n > 0 && len(rows) > n {
		rows = slices.Delete(rows, 0, len(rows)-n)
	}
	return rows
}

// why is a letter's reason, or whose letter it is where it does not say.
func why(e *dlq.Entry) string {
	if e.Envelope.Reason != "" {
		return dlq.Escape([]byte(e.Envelope.Reason), maxCell)
	}
	return "[" + string(e.Format) + "]"
}

// tally counts letters by why they are dead.
type tally map[string]int64

func (t tally) String() string { return counts(t, "%s") }

// topicError adds what to do about a topic that cannot be read.
func topicError(topic string, err error) error {
	if errors.Is(err, kafka.ErrUnknownTopic) {
		return &failure{
			err:  fmt.Errorf("topic %q does not exist", topic),
			hint: "check --topic and --brokers; the dead letter topic of \"orders\" is \"" + dlq.DefaultTopic("orders") + "\" unless its route names another",
		}
	}
	if errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
		return &failure{
			err:  err,
			hint: "let the user Describe and Read " + topic + ", and for a replay Describe, DescribeConfigs and Write its replay topics",
		}
	}
	return err
}

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/outbox"
)

func newOutboxStatus(s streams) *cobra.Command {
	var dsn dsnFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Tell how many events wait for which topic, and for how long",
		Long: `Tells of each topic for which events wait how many there are, their size and the age of the oldest, and the same of all;
and the age of the oldest transaction in the database, which keeps sent events from being cleared away (0 if the role may
not see the sessions of others). Of a topic with many events in a table of more than 16 MB it is an estimate.

An event waits until it is sent, and is never given up. If those of one topic wait and the others are sent, the topic does
not take them: the forwarder's report outbox_blocked, a line in its log, says why.`,
		Example: `  headrace outbox status
  headrace outbox status --json | jq .oldest_seconds
  headrace outbox status --json | jq '.topics[] | select(.oldest_seconds > 60)'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pool, closes, err := dsn.open(cmd.Context(), s)
			if err != nil {
				return err
			}
			defer closes()
			o, err := lookAtOutbox(cmd.Context(), pool)
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(s.out, o)
			}
			return o.print(s)
		},
	}
	dsn.register(cmd.Flags(), "the database with the outbox")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// outboxJSON is what 'outbox status --json' prints. The names are stable: scripts read them.
type outboxJSON struct {
	Rows     int64       `json:"rows"` // events of all topics
	Bytes    int64       `json:"bytes"`
	Oldest   float64     `json:"oldest_seconds"`
	Snapshot float64     `json:"snapshot_seconds"`
	Topics   []topicJSON `json:"topics"`
}

// topicJSON is what waits for one of them.
type topicJSON struct {
	Topic  string  `json:"topic"`
	Rows   int64   `json:"rows"`
	Bytes  int64   `json:"bytes"`
	Oldest float64 `json:"oldest_seconds"`
}

// lookAtOutbox sums up the topics: what is counted by itself is of another moment.
func lookAtOutbox(ctx context.Context, pool *pgxpool.Pool) (o outboxJSON, err error) {
	all, err := outbox.Size(ctx, pool)
	if err != nil {
		return o, err
	}
	topics, err := outbox.Topics(ctx, pool)
	if err != nil {
		return o, err
	}
	o.Snapshot, o.Topics = all.Snapshot.Seconds(), []topicJSON{}
	for _, t := range topics {
		o.Topics = append(o.Topics, topicJSON{t.Topic, t.Events, t.Bytes, t.Oldest.Seconds()})
		o.Rows, o.Bytes, o.Oldest = o.Rows+t.Events, o.Bytes+t.Bytes, max(o.Oldest, t.Oldest.Seconds())
	}
	return o, nil
}

func (o *outboxJSON) print(s streams) error {
	t := table{header: []string{"EVENTS", "BYTES", "OLDEST", "TOPIC"}, right: map[string]bool{"EVENTS": true, "BYTES": true, "OLDEST": true}}
	line := func(rows, bytes int64, oldest float64, topic string) {
		t.add(strconv.FormatInt(rows, 10), strconv.FormatInt(bytes, 10), lasted(oldest), topic)
	}
	for _, w := range o.Topics {
		line(w.Rows, w.Bytes, w.Oldest, dlq.Escape([]byte(w.Topic), maxCell))
	}
	line(o.Rows, o.Bytes, o.Oldest, fmt.Sprintf("total of %s", plural(int64(len(o.Topics)), "topic")))
	if err := t.write(s.out, s.width); err != nil {
		return err
	}
	_, err := fmt.Fprintf(s.out, "oldest open transaction: %s\n", lasted(o.Snapshot))
	return err
}

func lasted(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond).String()
}

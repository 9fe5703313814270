package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/outbox"
	"github.com/headrace/headrace/record"
)

// waiting is what 'outbox status --json' prints.
type waiting struct {
	Rows     int64   `json:"rows"`
	Bytes    int64   `json:"bytes"`
	Oldest   float64 `json:"oldest_seconds"`
	Snapshot float64 `json:"snapshot_seconds"`
}

func newOutboxStatus(s streams) *cobra.Command {
	var dsn dsnFlag
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Tell how many events wait, and for how long",
		Long: `Tells how many events wait to be sent, their size, the age of the oldest, and that of the oldest transaction in the
database, which keeps sent ones from being cleared away (0 if the role may not see the sessions of others).`,
		Example: `  headrace outbox status
  headrace outbox status --json | jq .oldest_seconds`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pool, closes, err := dsn.open(cmd.Context(), s)
			if err != nil {
				return err
			}
			defer closes()
			i, err := outbox.Size(cmd.Context(), pool)
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(s.out).Encode(waiting{i.Rows, i.Bytes, i.Oldest.Seconds(), i.Snapshot.Seconds()})
			}
			return tellWaiting(s, i)
		},
	}
	dsn.register(cmd.Flags(), "the database with the outbox")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func tellWaiting(s streams, i record.OutboxInfo) error {
	_, err := fmt.Fprintf(s.out, "events                   %s\nbytes                    %s\noldest                   %s\noldest open transaction  %s\n",
		strconv.FormatInt(i.Rows, 10), strconv.FormatInt(i.Bytes, 10), i.Oldest.Round(time.Millisecond), i.Snapshot.Round(time.Millisecond))
	return err
}

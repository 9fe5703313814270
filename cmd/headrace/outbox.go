package main

import (
	"github.com/spf13/cobra"
)

func newOutbox(s streams) *cobra.Command {
	return group(&cobra.Command{
		Use:   "outbox",
		Short: "Send what handlers have published in their transactions",
		Long: `Handlers publish events into headrace.outbox, in the transactions of their effects. 'run' sends them to the brokers and
deletes what is confirmed; a consumer with Config.Outbox does the same. 'status' tells how much waits.`,
		Example: `  headrace outbox run --metrics :9102
  headrace outbox status`,
	}, newOutboxRun(s), newOutboxStatus(s))
}

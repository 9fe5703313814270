package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// allCommands are a command and everything below it that is ours.
func allCommands(root *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{root}
	for _, c := range root.Commands() {
		list = append(list, allCommands(c)...)
	}
	return list
}

// requireParses checks that the command line in an example, or in the documentation, names a command and flags that
// exist.
func requireParses(t *testing.T, line string) {
	t.Helper()
	_, after, found := strings.Cut(line, "headrace ")
	if !found {
		return
	}
	for _, end := range []string{" | ", " > ", " #"} {
		after, _, _ = strings.Cut(after, end)
	}
	args := strings.Fields(after)
	cmd, rest, err := newRoot(process()).Find(args)
	require.NoError(t, err, line)
	require.NoError(t, cmd.ParseFlags(rest), line)
	if cmd.Args != nil {
		require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), line)
	}
	require.False(t, cmd.HasSubCommands() && cmd.Flags().NArg() > 0, "%s: no such command", line)
}

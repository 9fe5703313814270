package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// refuseEmpty refuses values that are given and empty. They are variables of a script that were not set, and would mean
// every letter of a topic where one was meant. A record's key may be empty, and an
// operator may say nothing.
func refuseEmpty(cmd *cobra.Command, args []string) error {
	if strings.HasPrefix(cmd.Name(), cobra.ShellCompRequestCmd) {
		return nil // what is being typed may be empty
	}
	if slices.Contains(args, "") {
		return usagef("an argument of '%s' is empty", cmd.CommandPath()).fix("give it a value, or leave it out; a variable of a script may not be set")
	}
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if err == nil && f.Name != "key" && f.Name != "why" && empty(f.Value) {
			err = usagef("--%s is empty", f.Name).fix("give it a value, or leave it out; a variable of a script may not be set")
		}
	})
	return err
}

func empty(v pflag.Value) bool {
	if list, ok := v.(pflag.SliceValue); ok {
		values := list.GetSlice()
		return len(values) == 0 || slices.Contains(values, "")
	}
	return v.String() == ""
}

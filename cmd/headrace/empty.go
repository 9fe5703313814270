package main

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// refuseValues refuses what can be no value of anything: a database would say so in words of its own.
func refuseValues(cmd *cobra.Command, args []string) error {
	if err := refuseEmpty(cmd, args); err != nil {
		return err
	}
	for _, arg := range args {
		if err := textual("an argument of '"+cmd.CommandPath()+"'", arg); err != nil {
			return err
		}
	}
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			if err == nil && f.Name != "key" { // a record's key is bytes
				err = textual("--"+f.Name, v)
			}
		}
	})
	return err
}

func textual(what, value string) error {
	switch {
	case strings.ContainsRune(value, 0):
		return usagef("%s has a NUL in it", what).fix("leave it out: no name has one")
	case !utf8.ValidString(value):
		return usagef("%s is no UTF-8", what).fix("write it in UTF-8, as every name is")
	}
	return nil
}

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

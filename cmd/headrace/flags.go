package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError adds to what is wrong with a flag what to write instead.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var lacking *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown) && cmd.HasSubCommands():
		// The flags of a misspelt command are looked at before its name is.
		if first := cmd.Flags().Arg(0); first != "" {
			return unknownCommand(cmd, first)
		}
		return (&usageError{err: err}).fix("write flags after the command, one of: " + strings.Join(names(cmd), ", "))
	case errors.As(err, &unknown):
		return (&usageError{err: err}).fix(similarFlag(cmd, unknown.GetSpecifiedName()))
	case errors.As(err, &lacking):
		return (&usageError{err: err}).fix("write it as in " + exampleOf(lacking.GetFlag()))
	case errors.As(err, &invalid):
		flag := invalid.GetFlag()
		return usagef("--%s %q is no %s", flag.Name, invalid.GetValue(), kindOf(flag)).fix("write it as in " + exampleOf(flag))
	}
	return (&usageError{err: err}).fix("write --flag value or --flag=value")
}

// kindOf is what a flag takes. Those that take any text cannot be wrong.
func kindOf(flag *pflag.Flag) string {
	switch flag.Value.Type() {
	case "int":
		return "whole number"
	case "bool":
		return "true or false"
	}
	return "list"
}

func exampleOf(flag *pflag.Flag) string {
	switch value, _ := pflag.UnquoteUsage(flag); flag.Value.Type() {
	case "int":
		return "--" + flag.Name + " " + flag.DefValue
	case "bool":
		return "--" + flag.Name + ", or --" + flag.Name + "=false"
	case "stringSlice":
		return "--" + flag.Name + " one,two"
	default:
		return "--" + flag.Name + " <" + value + ">"
	}
}

// asFlag says which flag may have been meant by an argument without one.
func asFlag(cmd *cobra.Command, argument string) string {
	if slices.Contains(states(), argument) && cmd.Flags().Lookup("state") != nil {
		return "leave it out: --state of this command takes no value, it shows the states; 'headrace dlq replay' chooses by them"
	}
	if cmd.Flags().Lookup("topic") != nil && !strings.ContainsAny(argument, "/ ") {
		return "if it is the topic, write --topic " + quoted(argument)
	}
	return "leave it out, or write it as the value of a flag"
}

// similarFlag is a fix for a flag that does not exist.
func similarFlag(cmd *cobra.Command, name string) string {
	if name == "n" && cmd.Flags().Lookup("dry-run") != nil {
		return "did you mean --dry-run?" // as make and rsync call it
	}
	best, least := "", min(3, len(name)) // two letters may be wrong, and not all
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		d := distance(name, f.Name)
		if len(name) > 2 && strings.HasPrefix(f.Name, name) {
			d = 0
		}
		if d < least {
			best, least = f.Name, d
		}
	})
	if best == "" {
		return "leave it out"
	}
	return "did you mean --" + best + "?"
}

// distance is how many letters must be put in, taken out or changed to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, row[j]+1, before+1)
		}
	}
	return row[len(b)]
}

// clusterFlags are by what a command line names the cluster and the topic, filterNames by what it names letters beside
// their reason.
var (
	clusterFlags = []string{"brokers", "tls", "tls-ca-file", "tls-cert-file", "tls-key-file", "sasl-mechanism", "sasl-user", "sasl-password-file", "topic"}
	filterNames  = []string{"source", "group", "route", "format", "key", "id", "at", "since", "until"}
)

// typed are those of the flags that were given, as they can be typed again. None of them is a password.
func typed(fs *pflag.FlagSet, names []string) string {
	var line strings.Builder
	for _, name := range names {
		f := fs.Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		for _, value := range valuesOf(f) {
			line.WriteString(" --" + name)
			if f.Value.Type() != "bool" {
				line.WriteString(" " + quoted(value))
			}
		}
	}
	return line.String()
}

// valuesOf are the values that a flag was given, each as it must be written.
func valuesOf(f *pflag.Flag) []string {
	list, ok := f.Value.(pflag.SliceValue)
	switch {
	case f.Value.Type() == "bool" && f.Value.String() == "false":
		return nil
	case !ok:
		return []string{f.Value.String()}
	case f.Value.Type() != "stringSlice":
		return list.GetSlice()
	}
	values := list.GetSlice()
	for i, value := range values {
		if strings.ContainsAny(value, "\",\n") {
			values[i] = `"` + strings.ReplaceAll(value, `"`, `""`) + `"` // else it is two values
		}
	}
	return []string{strings.Join(values, ",")}
}

// quoted is a word for a shell.
func quoted(word string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_./:,=@%+", r)
	}
	if word != "" && strings.TrimFunc(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/record"
)

// maxShown is how much of a key, a header or a value is shown, in bytes; --raw gives all of a value.
const maxShown = 64 << 10

type showFlags struct {
	lettersFlags
	state             stateFlags
	raw, json, pretty bool
}

func newShow(s streams) *cobra.Command {
	var f showFlags
	cmd := &cobra.Command{
		Use:   "show [partition/offset]",
		Short: "Show one dead letter whole",
		Long: `Shows a letter: why and where it died, what to do about it, and the record with its headers, key and value. Name it
by where it stands, as ls shows it under LETTER, or by --at, --id or any filter that leaves one. By where it stands you
get that very letter, although its record may have died again and have a later one, which is named.

What a producer wrote is escaped: it cannot move the cursor, change colours or turn text around. Headers and values
that look like secrets are shown as such and not printed. --raw writes the value's bytes as they are, to a pipe or a
file only.`,
		Example: `  headrace dlq show --brokers kafka:9092 --topic orders.dlq 3/120
  headrace dlq show --topic orders.dlq --at orders/3/917 --state
  headrace dlq show --topic orders.dlq 3/120 --raw > value.bin
  headrace dlq show --topic orders.dlq --id order-4711 --json | jq .headers`,
		Args: onePlace,
		RunE: func(cmd *cobra.Command, args []string) error { return f.show(cmd.Context(), s, args) },
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&f.raw, "raw", false, "write the value's bytes and nothing else; not to a terminal")
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON object")
	cmd.Flags().BoolVar(&f.pretty, "pretty", false, "indent a JSON value, as on a terminal")
	f.state.register(cmd.Flags())
	f.finish(cmd)
	return cmd
}

// onePlace takes at most a letter's place.
func onePlace(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef("unexpected argument %q: one letter at a time", args[1]).fix("leave it out; --at may be repeated")
	}
	return nil
}

func (f *showFlags) show(ctx context.Context, s streams, args []string) error {
	if err := rawFits(s, f.raw, f.json); err != nil {
		return err
	}
	cfg, err := f.read(s, strings.Join(args, ""), f.now)
	if err != nil {
		return err
	}
	e, err := f.only(ctx, cfg)
	if err != nil {
		return err
	}
	if e.Format == dlq.FormatUnknown && !slices.Contains(f.filter.formats, string(dlq.FormatUnknown)) {
		fmt.Fprintf(s.err, "note: %s is no dead letter: %s\n", e.Place(), f.elsewhere())
	}
	if f.raw {
		_, err := s.out.Write(e.Value)
		return err
	}
	rows := []row{newRow(e)}
	if err := f.state.fill(ctx, s, rows); err != nil {
		return err
	}
	return f.print(s, e, rows[0])
}

// errSecond ends a reading that has found more than one letter.
var errSecond = errors.New("more than one letter")

// only is the one letter that matches.
func (f *showFlags) only(ctx context.Context, cfg dlq.ReadConfig) (*dlq.Entry, error) {
	if err := reach(ctx, cfg.Client); err != nil {
		return nil, err
	}
	var found, second *dlq.Entry
	snapshot, err := dlq.Read(ctx, cfg, func(e *dlq.Entry) error {
		if found == nil {
			found = e
			return nil
		}
		second = e
		return errSecond
	})
	switch {
	case second != nil:
		return nil, usagef("more than one letter matches: %s, %s, …", letterCell(found), letterCell(second)).
			fix("name one by its place, as in '" + f.command("show", letterCell(found)) + "'")
	case err != nil:
		return nil, topicError(f.topic, err)
	case found == nil:
		return nil, &failure{
			err:  errors.New(noneMatches(f.topic, snapshot)),
			hint: "list what is there with '" + strings.TrimSpace(f.command("ls", "")) + "'",
		}
	}
	return found, nil
}

func (f *showFlags) print(s streams, e *dlq.Entry, r row) error {
	if f.json {
		return writeJSON(s.out, wholeToJSON(e, r))
	}
	var out strings.Builder
	writeEnvelope(&out, e, r.outcome)
	writeHeaders(&out, e.Headers)
	writeBytes(&out, "key", e.Key, "none", false)
	writeBytes(&out, "value", e.Value, "none: a tombstone", f.pretty || s.outTerminal)
	_, err := io.WriteString(s.out, out.String())
	return err
}

// lineEach writes a line for each value that there is.
func lineEach(out io.Writer) func(name, value string) {
	return func(name, value string) {
		if value != "" {
			fmt.Fprintf(out, "%-13s %s\n", name, dlq.Preview([]byte(value), maxShown))
		}
	}
}

// writeEnvelope writes what is known of the letter, a line each; what is not known has none.
func writeEnvelope(w io.Writer, e *dlq.Entry, outcome dlq.Outcome) {
	env := e.Envelope
	line := lineEach(w)
	line("letter", e.Place().String())
	if e.Later != nil {
		line("superseded", "by "+e.Later.String()+", a later letter of the same record")
	}
	line("format", string(e.Format))
	line("written", momentOrNone(e.Written))
	line("state", string(outcome))
	line("reason", string(env.Reason))
	if a, ok := advised[env.Reason]; ok {
		line("  means", a.meaning)
		line("  to do", a.action)
	}
	line("origin", env.Origin.String())
	line("  timestamp", momentOrNone(env.Timestamp))
	if env.Latest != env.Origin && env.Latest.Known() {
		line("  last read at", env.Latest.String())
	}
	line("id", env.Identity())
	line("group", env.Group)
	line("route", env.Route)
	line("class", env.Class)
	line("error type", env.ErrorType)
	line("error", env.Message)
	line("fingerprint", env.Fingerprint)
	line("attempts", numberCell(env.Attempts))
	line("replays", numberCell(env.Replays))
	line("first failed", momentOrNone(env.FirstFailed))
	line("last failed", momentOrNone(env.LastFailed))
	writeHistory(w, env.History)
	writeStack(w, env.Stack)
}

func momentOrNone(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// writeHistory writes what each round ended with, of a record that was parked.
func writeHistory(w io.Writer, history string) {
	if history == "" {
		return
	}
	fmt.Fprintln(w, "\nrounds before")
	for line := range strings.Lines(history) {
		fmt.Fprintln(w, "  "+dlq.Preview([]byte(strings.TrimRight(line, "\n")), maxShown))
	}
}

func writeStack(w io.Writer, stack string) {
	if stack == "" {
		return
	}
	fmt.Fprintln(w, "\nstack")
	for line := range strings.Lines(strings.TrimRight(stack, "\n")) {
		line = strings.TrimRight(line, "\n")
		text := strings.TrimLeft(line, "\t")
		fmt.Fprintln(w, "  "+strings.Repeat("  ", len(line)-len(text))+dlq.Preview([]byte(text), maxShown))
	}
}

func writeHeaders(w io.Writer, hs []record.Header) {
	fmt.Fprintf(w, "\nheaders (%d)\n", len(hs))
	for _, h := range hs {
		value := "(null)"
		if h.Value != nil {
			value = dlq.HeaderValue(h, maxShown)
		}
		fmt.Fprintf(w, "  %s: %s\n", dlq.Escape([]byte(h.Key), maxShown), value)
	}
}

func writeBytes(w io.Writer, name string, b []byte, none string, pretty bool) {
	if b == nil {
		fmt.Fprintf(w, "\n%s (%s)\n", name, none)
		return
	}
	fmt.Fprintf(w, "\n%s (%s)\n", name, plural(int64(len(b)), "byte"))
	for _, line := range shownLines(b, pretty) {
		fmt.Fprintln(w, "  "+dlq.Preview(line, maxShown))
	}
	if len(b) > maxShown && name == "value" {
		fmt.Fprintln(w, "  (--raw writes all of it)")
	}
}

// shownLines is the value in lines: those of its JSON if it is valid and wanted so, else itself. A newline of the value's
// own is escaped: it is data.
func shownLines(b []byte, pretty bool) [][]byte {
	if len(b) == 0 {
		return nil
	}
	var indented bytes.Buffer
	if !pretty || len(b) > maxShown || json.Indent(&indented, b, "", "  ") != nil {
		return [][]byte{b}
	}
	return bytes.Split(indented.Bytes(), []byte("\n"))
}

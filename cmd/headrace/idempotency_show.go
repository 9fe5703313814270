package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/idempotency"
	"github.com/headrace/headrace/record"
)

type keysShowFlags struct {
	keysFlags

	json bool
}

func newKeysShow(s streams) *cobra.Command {
	var f keysShowFlags
	cmd := &cobra.Command{
		Use:   "show key",
		Short: "Show one key, whatever its state",
		Long: `Shows a key by the value of its Idempotency-Key: whose it is, since when, whether it is in progress, unknown or finished,
and what a finished one is answered. One that a transaction is running for at this moment is not there yet.

What a client or a handler wrote is escaped; headers and bodies that look like secrets are not printed.`,
		Example: `  headrace idempotency show 5a1f0c3e-7b1d-4c55-9d0e-0c6a2f0e9b11
  headrace idempotency show 5a1f0c3e-7b1d-4c55-9d0e-0c6a2f0e9b11 --route charge --json`,
		Args: oneKey,
		RunE: func(cmd *cobra.Command, args []string) error { return f.show(cmd.Context(), s, args[0]) },
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON object")
	f.finish(cmd)
	return cmd
}

// oneKey takes the value of an Idempotency-Key.
func oneKey(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("'%s' takes one key, not %d", cmd.CommandPath(), len(args)).fix("name it as ls shows it under KEY")
	}
	return nil
}

// only is the one key with this name.
func (f *keysFlags) only(ctx context.Context, keys *idempotency.Keys, name string) (*idempotency.FoundKey, error) {
	found, err := keys.Find(ctx, f.key(name), 2)
	if shown := strings.ReplaceAll(name, `\\`, `\`); err == nil && len(found) == 0 && shown != name {
		found, err = keys.Find(ctx, f.key(shown), 2) // as ls shows it
	}
	switch {
	case err != nil:
		return nil, keysError(err)
	case len(found) == 0:
		return nil, &failure{err: fmt.Errorf("there is no such key"), hint: "it is free, or in a transaction at this moment; 'headrace idempotency ls' lists unknown ones"}
	case len(found) > 1:
		return nil, usagef("more than one key has this name: %s, %s", whose(found[0].Key), whose(found[1].Key)).
			fix("add --route, --method or --principal")
	}
	return &found[0], nil
}

// whose tells keys of one name apart.
func whose(k idempotency.Key) string {
	return dlq.Escape(fmt.Appendf(nil, "of %s %s of %q", k.Method, k.Route, k.Principal), maxCell)
}

func (f *keysShowFlags) show(ctx context.Context, s streams, name string) error {
	keys, closes, err := f.open(ctx, s)
	if err != nil {
		return err
	}
	defer closes()
	k, err := f.only(ctx, keys, name)
	if err != nil {
		return err
	}
	if f.json {
		return writeJSON(s.out, keyToJSON(k))
	}
	var out strings.Builder
	writeKey(&out, k)
	if k.State == idempotency.StateFinished {
		writeHeaders(&out, answerHeaders(k.Answer))
		writeBytes(&out, "body", k.Answer.Body, "none", s.outTerminal)
	}
	_, err = io.WriteString(s.out, out.String())
	return err
}

func writeKey(out io.Writer, k *idempotency.FoundKey) {
	line := lineEach(out)
	line("key", k.Key.Key)
	line("route", k.Route)
	line("method", k.Method)
	line("principal", k.Principal)
	line("state", k.State)
	line("started", momentOrNone(k.StartedAt))
	switch k.State {
	case idempotency.StateUnknown:
		line("since", momentOrNone(k.Deadline))
		line("note", k.Note)
	case idempotency.StateInProgress:
		line("unknown at", momentOrNone(k.Deadline))
	default:
		line("finished", momentOrNone(k.FinishedAt))
		line("answer", strconv.Itoa(k.Answer.Status))
	}
}

func answerHeaders(a idempotency.Answer) (list []record.Header) {
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		for _, value := range a.Header[name] {
			list = append(list, record.Header{Key: name, Value: []byte(value)})
		}
	}
	return list
}

// keyJSON is a key as 'show --json' prints it.
type keyJSON struct {
	unknownJSON

	State       string       `json:"state"`
	Deadline    *time.Time   `json:"deadline"`
	Finished    *time.Time   `json:"finished"`
	Status      int          `json:"status,omitempty"`
	Headers     []headerJSON `json:"headers,omitempty"`
	BodyPreview *string      `json:"body_preview"`
}

func keyToJSON(k *idempotency.FoundKey) keyJSON {
	j := keyJSON{
		unknownJSON: unknownJSON{Route: k.Route, Method: k.Method, Principal: k.Principal, Key: k.Key.Key, Started: timeJSON(k.StartedAt), Note: k.Note},
		State:       k.State, Deadline: timeJSON(k.Deadline), Finished: timeJSON(k.FinishedAt), Status: k.Answer.Status,
	}
	if k.State == idempotency.StateUnknown {
		j.Since = j.Deadline
	}
	if k.State == idempotency.StateFinished {
		j.Headers = headersJSON(answerHeaders(k.Answer))
		body := dlq.Preview(k.Answer.Body, maxShown)
		j.BodyPreview = &body
	}
	return j
}

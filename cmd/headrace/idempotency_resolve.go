package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/idempotency"
)

type keysResolveFlags struct {
	keysFlags

	done, notDone     bool
	status            int
	body, contentType string
	dryRun, yes       bool
}

func newKeysResolve(s streams) *cobra.Command {
	var f keysResolveFlags
	cmd := &cobra.Command{
		Use:   "resolve key",
		Short: "Say whether an unknown key was done",
		Long: `Says of a key whose outcome is unknown that it was done, and what its requests are answered from now on, or that it was
not done and never will be by the run that began: the next request runs. Look in the other system first: --not-done of what
was done, or is done later, makes a second effect.

A key that is not unknown (any more) is left as it is, and the exit code is 1. It cannot be taken back.`,
		Example: `  headrace idempotency resolve 5a1f0c3e-7b1d-4c55-9d0e-0c6a2f0e9b11 --not-done --dry-run
  headrace idempotency resolve 5a1f0c3e-7b1d-4c55-9d0e-0c6a2f0e9b11 --not-done --yes
  headrace idempotency resolve 5a1f0c3e-7b1d-4c55-9d0e-0c6a2f0e9b11 --done --status 201 --body @answer.json --yes`,
		Args: oneKey,
		RunE: func(cmd *cobra.Command, args []string) error { return f.resolve(cmd.Context(), s, args[0]) },
	}
	f.register(cmd)
	fs := cmd.Flags()
	fs.BoolVar(&f.done, "done", false, "it was done: answer this from now on")
	fs.BoolVar(&f.notDone, "not-done", false, "it was not done, and the run that began will not do it: the next request runs")
	fs.IntVar(&f.status, "status", http.StatusOK, "with --done: the answer's `status`")
	fs.StringVar(&f.body, "body", "", "with --done: the answer's body, a `text` or @file")
	fs.StringVar(&f.contentType, "content-type", "application/json", "with --done and --body: the body's `type`")
	fs.BoolVar(&f.dryRun, "dry-run", false, "write nothing, tell what would be done")
	fs.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	f.finish(cmd)
	return cmd
}

// answer is what the flags say that requests are answered.
func (f *keysResolveFlags) answer() (a idempotency.Answer, err error) {
	if f.done == f.notDone {
		return a, usagef("say --done or --not-done").fix("look in the other system which it is")
	}
	if f.notDone && (f.flags.Changed("status") || f.flags.Changed("body")) {
		return a, usagef("--not-done has no answer: the next request runs").fix("leave out --status and --body, or say --done")
	}
	a = idempotency.Answer{Status: f.status, Header: http.Header{}, Body: []byte(f.body)}
	if name, ok := strings.CutPrefix(f.body, "@"); ok {
		if a.Body, err = os.ReadFile(name); err != nil {
			return a, usagef("--body: %w", err).fix("name a file that this user can read")
		}
	}
	if err := a.Validate(); f.done && err != nil {
		return a, usagef("--status %d: %w", f.status, err).fix("give the one that its requests are to be answered, as 201")
	}
	if len(a.Body) > 0 {
		a.Header.Set("Content-Type", f.contentType)
	}
	return a, nil
}

func (f *keysResolveFlags) resolve(ctx context.Context, s streams, name string) error {
	a, err := f.answer()
	if err != nil {
		return err
	}
	if !f.yes && !f.dryRun && !s.inTerminal {
		return usagef("resolve wants a yes, and there is no terminal to ask on").fix("look first with --dry-run, then add --yes")
	}
	keys, closes, err := f.open(ctx, s)
	if err != nil {
		return err
	}
	defer closes()
	k, err := f.only(ctx, keys, name)
	if err != nil {
		return err
	}
	if k.State != idempotency.StateUnknown {
		return errSettled(k.State)
	}
	writeKey(s.out, k)
	said := "not done: the next request runs"
	if f.done {
		said = fmt.Sprintf("done: requests are answered %d with %s", a.Status, plural(int64(len(a.Body)), "byte"))
	}
	if f.dryRun {
		fmt.Fprintln(s.out, "would be "+said+"; --dry-run wrote nothing")
		return nil
	}
	if !f.yes {
		fmt.Fprintf(s.err, "Is it %s? This cannot be taken back. [y/N] ", said)
		if err := agreed(ctx, s, "nothing was changed"); err != nil {
			return err
		}
	}
	unknown := idempotency.UnknownKey{Key: k.Key, Run: k.Run}
	if f.done {
		err = keys.ResolveDone(ctx, unknown, a)
	} else {
		err = keys.ResolveNotDone(ctx, unknown)
	}
	switch {
	case errors.Is(err, idempotency.ErrNotUnknown):
		return errSettled("unknown no more")
	case err != nil:
		return &failure{err: err, hint: "whether it was written is not known; running the command again is safe"}
	}
	fmt.Fprintln(s.out, said)
	return nil
}

func errSettled(state string) error {
	return &failure{
		err:  fmt.Errorf("nothing was changed: the key is %s", dlq.Escape([]byte(strings.ReplaceAll(state, "_", " ")), maxCell)),
		hint: "only a key whose outcome is unknown is resolved; see it with 'headrace idempotency show'",
	}
}

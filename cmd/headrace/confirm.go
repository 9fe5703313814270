package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headrace/headrace/dlq"
)

// asks says that somebody is to agree to more than one letter.
func (f *replayFlags) asks() bool { return !f.yes && !f.dryRun }

// confirm asks whether the letters that were counted are meant.
func (f *replayFlags) confirm(ctx context.Context, s streams, v *survey) error {
	n := total(v.counts)
	switch {
	case !f.asks() || n <= 1:
		return nil
	case !s.inTerminal:
		return usagef("%d letters match (%s), and there is no terminal to ask on", n, v.counts).
			fix("add --yes, or name one letter by its place, as in '" + f.command("replay", "3/120") + "'")
	}
	v.ignored.tell(s)
	if anew := v.counts[string(dlq.IDConflict)]; anew > 0 && f.newID {
		fmt.Fprintf(s.err, "%s with --new-id: %s\n", plural(anew, "letter"), secondEffect(anew))
	}
	fmt.Fprintf(s.err, "Replay %d letters of %s (%s)? [y/N] ", n, f.topic, v.counts)
	return agreed(ctx, s, "nothing was replayed")
}

// secondEffect is what --new-id does to n letters.
func secondEffect(n int64) string {
	if n == 1 {
		return "it runs as a record of its own, with " + beside
	}
	return "each runs as a record of its own, with " + beside
}

const beside = "a second effect beside the one that counts (a second charge, a second posting)"

// agreed gives an error that says otherwise unless the answer is yes.
func agreed(ctx context.Context, s streams, otherwise string) error {
	yes, err := answer(ctx, s)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", otherwise, err)
	case !yes:
		return &failure{err: errors.New(otherwise), hint: "answer y, or add --yes"}
	}
	return nil
}

// answer waits for a line or a signal. The goroutine that reads stays behind after a signal, until the process ends.
func answer(ctx context.Context, s streams) (yes bool, err error) {
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(s.in).ReadString('\n') // no answer is a no
		line <- text
	}()
	select {
	case text := <-line:
		text = strings.ToLower(strings.TrimSpace(text))
		return text == "y" || text == "yes", nil
	case <-ctx.Done():
		fmt.Fprintln(s.err)
		return false, context.Cause(ctx)
	}
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headrace/headrace/dlq"
)

// confirm counts the letters and asks whether they are meant. What it counted bounds the replay: what arrives while
// somebody thinks is not part of the answer.
func (f *replayFlags) confirm(ctx context.Context, s streams, cfg *dlq.ReadConfig) error {
	if f.yes || f.dryRun {
		return nil
	}
	counts := tally{}
	snapshot, err := dlq.Read(ctx, *cfg, func(e *dlq.Entry) error { counts[why(e)]++; return nil })
	if err != nil {
		return err
	}
	cfg.Ends = snapshot.Ends
	n := total(counts)
	switch {
	case n <= 1:
		return nil
	case !s.inTerminal:
		return usagef("%d letters match (%s), and there is no terminal to ask on", n, counts).
			fix("add --yes, or name one letter by its place, as in 'headrace dlq replay --topic " + f.topic + " 3/120'")
	}
	fmt.Fprintf(s.err, "Replay %d letters of %s (%s)? [y/N] ", n, f.topic, counts)
	return agreed(ctx, s, "nothing was replayed")
}

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

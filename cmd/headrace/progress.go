package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headrace/headrace/dlq"
)

// redraw is how often the progress line changes.
const redraw = 200 * time.Millisecond

// teller tells of each letter as it is replayed: a progress line where somebody looks on, a line for each that failed
// and, in a dry run, for each.
type teller struct {
	s                     streams
	dryRun                bool
	drawn                 time.Time
	sent, skipped, failed int
}

func newTeller(s streams, dryRun bool) *teller { return &teller{s: s, dryRun: dryRun} }

func (t *teller) each(e *dlq.Entry, r dlq.Result) {
	switch {
	case r.Err != nil:
		t.failed++
		t.clear()
		fmt.Fprintf(t.s.err, "failed  %s: %s\n", letterName(e), dlq.Escape([]byte(safe(t.s, r.Err.Error())), maxMessage))
	case r.Skipped != "":
		t.skipped++
		t.list("skip", e, "%s", r.Skipped)
	default:
		t.sent++
		t.list("send", e, "to %s", r.Topic)
	}
	t.draw()
}

// list tells of one letter of a dry run.
func (t *teller) list(what string, e *dlq.Entry, format string, arg any) {
	if t.dryRun {
		fmt.Fprintf(t.s.out, "%s  %s  %s  %s\n", what, letterName(e), why(e), fmt.Sprintf(format, arg))
	}
}

// letterName is where a letter stands and where its record was read.
func letterName(e *dlq.Entry) string {
	name := dlq.Escape([]byte(e.Place().String()), maxCell)
	if e.Envelope.Origin.Known() {
		name += " (" + originCell(e.Envelope.Origin) + ")"
	}
	return name
}

func (t *teller) draw() {
	if !t.s.inTerminal || t.dryRun || time.Since(t.drawn) < redraw {
		return
	}
	t.clear()
	t.drawn = time.Now()
	fmt.Fprintf(t.s.err, "%d sent, %d skipped, %d failed", t.sent, t.skipped, t.failed)
}

// clear takes the progress line away, so that a line can be written.
func (t *teller) clear() {
	if !t.drawn.IsZero() {
		fmt.Fprint(t.s.err, "\r\x1b[K")
	}
}

func (t *teller) done() { t.clear() }

// counts are numbers by name, the largest first.
func counts[K ~string](m map[K]int64, format string) string {
	names := make([]K, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b K) int { return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b)) })
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%d "+format, m[name], string(name))
	}
	return strings.Join(parts, ", ")
}

func total[K comparable](m map[K]int64) (n int64) {
	for _, count := range m {
		n += count
	}
	return n
}

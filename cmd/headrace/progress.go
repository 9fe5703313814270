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
// and, in a dry run, for each. What is the same of many is one line at the end.
type teller struct {
	f                     *replayFlags
	s                     streams
	before                *survey // nil if there was none
	drawn                 time.Time
	sent, skipped, failed int
	// anew are those that were sent under a new id, ended those whose record had its end before.
	anew, ended int64
	ignored     ignored
	failures    failures
}

func newTeller(f *replayFlags, s streams, before *survey) *teller {
	return &teller{f: f, s: s, before: before, ignored: ignored{}}
}

func (t *teller) each(e *dlq.Entry, r dlq.Result) {
	switch {
	case r.Err != nil:
		t.failed++
		t.fail(e, r.Err)
	case r.Skipped != "":
		t.skipped++
		t.skip(e, r.Skipped)
	default:
		t.sent++
		t.send(e)
		t.list("send", e, "to "+r.Topic)
	}
	t.draw()
}

// send takes note of what is worth a word at the end.
func (t *teller) send(e *dlq.Entry) {
	t.ignored.see(t.f, e)
	if e.Envelope.Reason == dlq.IDConflict {
		t.anew++
	}
	if t.before != nil {
		switch t.before.state(e) {
		case dlq.OutcomeEffected, dlq.OutcomeSkipped, dlq.OutcomeDuplicate:
			t.ended++
		case dlq.OutcomeDead, dlq.OutcomeUnknown, "":
		}
	}
}

func (t *teller) skip(e *dlq.Entry, why dlq.Skip) {
	switch why {
	case dlq.SkipNoLetter: // there may be a whole topic of them
	case dlq.SkipSuperseded:
		t.list("skip", e, "superseded by "+e.Later.String())
		t.clear()
		fmt.Fprintf(t.s.err, "%s is superseded by %s, a later letter of the same record: replay that with\n  %s\n",
			letterCell(e), e.Later, t.f.command("replay", fmt.Sprintf("%d/%d", e.Later.Partition, e.Later.Offset)))
	case dlq.SkipIDConflict:
		t.list("skip", e, "wants --new-id")
	case dlq.SkipTooOften:
		t.list("skip", e, fmt.Sprintf("replayed %d times", e.Envelope.Replays))
	default:
		t.list("skip", e, "its record is "+string(why))
	}
}

// list tells of one letter of a dry run.
func (t *teller) list(what string, e *dlq.Entry, text string) {
	if t.f.dryRun {
		fmt.Fprintf(t.s.out, "%s  %s  %s  %s\n", what, letterName(e), why(e), text)
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
	if !t.s.inTerminal || t.f.dryRun || time.Since(t.drawn) < redraw {
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

// done tells what was kept for the end.
func (t *teller) done() {
	t.clear()
	t.failures.tell(t.s)
	if t.before == nil || !t.f.asks() { // else it was told before
		t.ignored.tell(t.s)
	}
}

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

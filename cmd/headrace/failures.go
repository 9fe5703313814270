package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/headrace/headrace/dlq"
)

// failures are the letters that could not be sent, by why.
type failures []*alike

// alike are letters that could not be sent for the same reason.
type alike struct {
	text   string
	n      int64
	places []string
}

// fewPlaces is how many of them are named.
const fewPlaces = 3

// fail tells of the first few failures of a kind; of letters that name too little only how many there are.
func (t *teller) fail(e *dlq.Entry, err error) {
	text := dlq.Escape([]byte(safe(t.s, err.Error())), maxMessage)
	var nameless *dlq.NamelessError
	if errors.As(err, &nameless) {
		text = fmt.Sprintf("without a %s: give %s", nameless.Lacks, t.f.lacking(e, nameless.Lacks))
	}
	var missing *dlq.NoReplayTopicError
	if errors.As(err, &missing) {
		text = dlq.Escape(fmt.Appendf(nil, "replay topic %q does not exist: nobody of group %q reads it yet; start a consumer of that "+
			"group with Config.CreateDeadLetterTopics, or add --create-topic; check that the group is the right one", missing.Topic, missing.Group), maxMessage)
	}
	g := t.failures.of(text)
	g.n++
	if g.n > fewPlaces {
		return
	}
	g.places = append(g.places, letterName(e))
	if nameless == nil {
		t.clear()
		fmt.Fprintf(t.s.err, "failed  %s: %s\n", letterName(e), text)
	}
}

func (l *failures) of(text string) *alike {
	for _, g := range *l {
		if g.text == text {
			return g
		}
	}
	g := &alike{text: text}
	*l = append(*l, g)
	return g
}

// lacking are the flags that a letter needs which does not name something.
func (f *replayFlags) lacking(e *dlq.Entry, lacks dlq.Name) string {
	var flags []string
	need := func(flag, given string, needs bool) {
		if given == "" && needs {
			flags = append(flags, flag)
		}
	}
	others := e.Format != dlq.FormatHeadrace // whose letters name no group and no route of ours
	need("--as-source", f.asSource, lacks == dlq.SourceTopic)
	need("--as-group", f.asGroup, lacks == dlq.ConsumerGroup || others)
	need("--as-route", f.asRoute, lacks == dlq.RouteName || others)
	return strings.Join(flags, ", ")
}

// tell says at the end what was not told of each.
func (l failures) tell(s streams) {
	for _, g := range l {
		switch {
		case strings.HasPrefix(g.text, "without a "):
			more := ""
			if g.n > int64(len(g.places)) {
				more = ", …"
			}
			fmt.Fprintf(s.err, "failed  %s %s (%s%s)\n", plural(g.n, "letter"), g.text, strings.Join(g.places, ", "), more)
		case g.n > fewPlaces:
			fmt.Fprintf(s.err, "failed  %d more: %s\n", g.n-fewPlaces, g.text)
		}
	}
}

package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/headrace/headrace/dlq"
)

// ignored counts the letters for which an --as flag says what they say themselves, and otherwise, by flag.
type ignored map[string]int64

func (g ignored) see(f *replayFlags, e *dlq.Entry) {
	env := &e.Envelope
	differs := func(flag, given, own string) {
		if given != "" && own != "" && given != own {
			g[flag]++
		}
	}
	differs("--as-source", f.asSource, env.Origin.Topic)
	if e.Format == dlq.FormatHeadrace { // what others call a group or a route is none of ours
		differs("--as-group", f.asGroup, env.Group)
		differs("--as-route", f.asRoute, env.Route)
	}
}

// tell says which flags were given in vain.
func (g ignored) tell(s streams) {
	for _, flag := range slices.Sorted(maps.Keys(g)) {
		name := map[string]dlq.Name{"--as-source": dlq.SourceTopic, "--as-group": dlq.ConsumerGroup, "--as-route": dlq.RouteName}[flag]
		fmt.Fprintf(s.err, "%s is ignored for %s with a %s of their own\n", flag, plural(g[flag], "letter"), name)
	}
}

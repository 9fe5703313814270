package consumer

import (
	"fmt"
	"strings"
)

// warnings are what may be meant, and is worth a line at start.
func warnings(c Config, specs []spec) []string {
	var ws []string
	for _, s := range specs {
		if need := s.options.AttemptTimeout + c.CommitReserve; need > c.DrainGrace {
			ws = append(ws, fmt.Sprintf("route %q: AttemptTimeout %s + CommitReserve %s = %s exceeds DrainGrace %s: "+
				"an attempt that needs all its time is cut off by a rebalance and done again",
				s.name, short(s.options.AttemptTimeout), short(c.CommitReserve), short(need), short(c.DrainGrace)))
		}
		if s.byOffset() && s.options.Identity != nil {
			ws = append(ws, fmt.Sprintf("route %q: Identity names its events and calls, and keeps no duplicate away: Store is the offset store, "+
				"so a record that its producer sends twice has its effect twice", s.name))
		}
		if strings.HasSuffix(s.topic, replaySuffix) {
			ws = append(ws, fmt.Sprintf("route %q consumes %q, which is named as another consumer group's replay topic: "+
				"if it is one, its records are dead letters of that group, which replays them for itself", s.name, s.topic))
		}
		if s.callTimeout() > c.DrainGrace {
			ws = append(ws, fmt.Sprintf("route %q: CallTimeout %s exceeds DrainGrace %s: "+
				"a call that needs all its time is cut off by a rebalance and made again with the same key",
				s.name, short(s.callTimeout()), short(c.DrainGrace)))
		}
	}
	return ws
}

package middleware

import (
	"maps"
	"slices"
	"time"

	"github.com/headrace/headrace/internal/redact"
	"github.com/headrace/headrace/record"
)

// Wait is something that a route waits for, as a whole or with a partition, and why.
type Wait struct {
	// Dependency is what it waits for, as record.HoldInfo names it.
	Dependency string
	// Partition is the one that waits, where that is not the whole route: of Flood. Else the zero Partition.
	Partition Partition
	// Since is from when on.
	Since time.Time
	// Err is what the dependency was found down with, or the partition's records die of: its text is redacted. nil where
	// nobody has said.
	Err error
	// Breaker is what opened the breaker of a called dependency; its To is "" where none is open.
	Breaker record.BreakerInfo
}

// Waiting lists everything that keeps the route from its records, in a fixed order: for readiness and alerts, never for
// liveness. It has what Gates.Down, Full and FloodGuard.Refusing have, with the reasons. A key that waits for itself alone
// is not in it. Safe for concurrent use, once a layer was made from the route.
func (rt *Route) Waiting() []Wait {
	waits := rt.down()
	if since, full := rt.Full(); full {
		waits = append(waits, Wait{Dependency: NoRoom, Since: since, Err: rt.room.gate.Why()})
	}
	refusing := rt.Flood.Refusing()
	for _, p := range Partitions(refusing) {
		waits = append(waits, Wait{Dependency: Flood, Partition: p, Since: refusing[p], Err: rt.Flood.why(p)})
	}
	for i := range waits {
		waits[i].Err, waits[i].Breaker.Err = redact.Of(waits[i].Err, rt.RedactError), redact.Of(waits[i].Breaker.Err, rt.RedactError)
	}
	return waits
}

func (rt *Route) down() (waits []Wait) {
	down := rt.Gates.Down()
	for _, name := range slices.Sorted(maps.Keys(down)) {
		w := Wait{Dependency: name, Since: down[name], Err: rt.Gates.why(name)}
		if rt.Call != nil && rt.Call.Dependency.Name() == name {
			if info, _, open := rt.Call.Dependency.Opened(); open {
				w.Breaker = info
			}
		}
		waits = append(waits, w)
	}
	return waits
}

package schedule

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// tally is what has happened in the schedules of a lab: a property that holds of nothing would hold always.
type tally struct {
	schedules, members, records int
	ends                        map[string]int // of members
	outcomes                    map[string]int // of records
}

func (t *tally) add(r *run) {
	if t.ends == nil {
		t.ends, t.outcomes = map[string]int{}, map[string]int{}
	}
	t.schedules++
	t.members += len(r.members)
	t.records += len(r.produced)
	for _, m := range r.members {
		t.ends[m.done]++
	}
	for what, n := range r.outcomes {
		t.outcomes[what] += n
	}
}

func (t *tally) report(tb testing.TB) {
	tb.Helper()
	tb.Logf("%d schedules: %d records (%s), %d members (%s)", t.schedules, t.records, list(t.outcomes), t.members, list(t.ends))
}

func list(counts map[string]int) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, counts[what]))
	}
	return strings.Join(parts, ", ")
}

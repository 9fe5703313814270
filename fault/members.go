package fault

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Members is what the handler of a whole group returns to name the records that failed, by their index in what it was
// given, each with its own error, which means what it means for a record alone (also Skip). A nil error is no failure,
// and Members without any failure is none. The others are neither charged nor lost: the handler runs again without
// those that are named.
//
//	failed := fault.Members{}
//	for i, e := range events {
//		if e.Data.Amount <= 0 {
//			failed[i] = fault.Permanent(errAmount)
//		}
//	}
//	if len(failed) > 0 {
//		return failed
//	}
//
// It has no meaning for a handler that gets one record.
type Members map[int]error

// maxMembersText is how many members the text of a Members names.
const maxMembersText = 3

// Error names the first few.
func (m Members) Error() string {
	var b strings.Builder
	failed := m.Failed()
	fmt.Fprintf(&b, "failed of the group: %d", len(failed))
	for n, i := range failed {
		if n == maxMembersText {
			b.WriteString("; …")
			break
		}
		fmt.Fprintf(&b, "; [%d] %v", i, m[i])
	}
	return b.String()
}

// Failed gives the indexes that have an error, ascending.
func (m Members) Failed() []int {
	failed := make([]int, 0, len(m))
	for _, i := range slices.Sorted(maps.Keys(m)) {
		if m[i] != nil {
			failed = append(failed, i)
		}
	}
	return failed
}

// AsMembers finds the Members that err is, through any wrap. It is false if a verb wraps it, and if it is joined with
// another error: then err is about the whole group.
func AsMembers(err error) (Members, bool) {
	head, _ := chain(err)
	for _, e := range head {
		if m, ok := e.(Members); ok { //nolint:errorlint // one step of a walk
			return m, true
		}
		if _, ok := verb(e); ok {
			return nil, false
		}
	}
	return nil, false
}

package claim

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/record"
)

// TestLineAllocations holds what 500 records may allocate from fetch to settlement: some slabs, and for a key that is new
// to the line its domain and its name.
func TestLineAllocations(t *testing.T) {
	const records = 500
	for _, c := range []struct {
		name string
		key  func(i int) []byte
		most float64
	}{
		{name: "WithoutKeys", key: func(int) []byte { return nil }, most: 25},
		{name: "OwnKeys", key: func(i int) []byte { return fmt.Append(nil, i) }, most: 25 + 2*records},
	} {
		t.Run(c.name, func(t *testing.T) {
			recs := raws(make([]string, records)...)
			for i := range recs {
				recs[i].Key = c.key(i)
			}
			cl := newTestClaim(ample)
			l := cl.NewLine(LineConfig{Order: ByKey, Lanes: 2, MaxBatch: records})
			n := testing.AllocsPerRun(20, func() {
				for i := range recs {
					recs[i].Offset += records
				}
				cl.Add(recs)
				for b := l.take(); b != nil; b = l.take() {
					for _, r := range b.Records {
						r.Settle(record.Effected)
					}
				}
			})
			require.Zero(t, cl.Load().Records)
			require.LessOrEqual(t, n, c.most)
			t.Logf("%.0f allocations", n)
		})
	}
}

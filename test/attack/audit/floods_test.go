package audit

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDeadOfADeployAreCountedUpToWhatTheFloodGuardLetsThrough(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		died, floods int
		found        string
	}{
		{2, 2, ""},
		{3, 2, "3 records of partition 0 are dead, and their fate was effect; the flood guard may let 2 through"},
		{1, 0, "is dead, and its fate was effect"},
	} {
		t.Run(fmt.Sprintf("%dOf%d", c.died, c.floods), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.ledger.Routes[0].Floods = c.floods
			for i := range c.died {
				id := fmt.Sprintf("died-%d", i)
				r := w.further(Effect, id)
				w.produce(w.letterOf(r))
				w.row(id, deadRow, r.Offset)
			}
			w.commit(int64(records + c.died))
			got, err := Run(t.Context(), w.ledger)
			require.NoError(t, err)
			require.Equal(t, 1+c.died, got.Dead)
			if c.found == "" {
				require.Empty(t, got.Violations)
			} else {
				require.Condition(t, func() bool { return mentions(got.Violations, c.found) }, "%q", got.Violations)
			}
		})
	}
}

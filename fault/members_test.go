package fault

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMembers(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")

	t.Run("NamesTheFailedInOrder", func(t *testing.T) {
		t.Parallel()
		m := Members{7: bad, 1: nil, 3: bad}
		require.Equal(t, []int{3, 7}, m.Failed())
		require.EqualError(t, m, "failed of the group: 2; [3] bad; [7] bad")
		require.EqualError(t, Members{1: bad, 2: bad, 3: bad, 4: bad}, "failed of the group: 4; [1] bad; [2] bad; [3] bad; …")
		require.Empty(t, Members(nil).Failed())
	})

	t.Run("IsFoundThroughAWrapAndNotThroughAVerb", func(t *testing.T) {
		t.Parallel()
		m := Members{1: bad}
		for what, tc := range map[string]struct {
			err  error
			want bool
		}{
			"Bare": {m, true}, "Wrapped": {fmt.Errorf("post: %w", m), true}, "Nil": {nil, false}, "Another": {bad, false},
			"Verb": {Unavailable(m, "payments"), false}, "Joined": {errors.Join(m, bad), false},
		} {
			found, ok := AsMembers(tc.err)
			require.Equal(t, tc.want, ok, what)
			if ok {
				require.Equal(t, m, found, what)
			}
		}
	})

	t.Run("SaysNothingAboutTheWholeByItsMembersVerbs", func(t *testing.T) {
		t.Parallel()
		m := Members{1: Skip("no"), 2: Transient(bad)}
		_, skip := AsSkip(m)
		require.False(t, skip)
		require.False(t, Said(m))
	})
}

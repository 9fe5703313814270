package kafka

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShares(t *testing.T) {
	t.Parallel()
	const all = 1 << 20
	for _, c := range []struct{ ordinary, replays, part, replay int64 }{
		{1, 0, all, 0},
		{1, 1, all / 8 * 7, all / 8},
		{1, 2, all / 8 * 7, all / 16},
		{7, 7, all / 8, all / 56},
		{15, 1, all / 16, all / 16},
		{0, 4, 0, all / 4},
	} {
		part, replay := shares(all, c.ordinary, c.replays)
		require.Equal(t, [2]int64{c.part, c.replay}, [2]int64{part, replay}, "%+v", c)
		require.LessOrEqual(t, c.ordinary*part+c.replays*replay, int64(all))
	}
}

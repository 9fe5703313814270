package dedup

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRuns(t *testing.T) {
	t.Parallel()

	t.Run("AreTheSetThatAMapIs", func(t *testing.T) {
		t.Parallel()
		rnd := rand.New(rand.NewPCG(1, 2))
		for range 200 {
			var s runs
			set := map[int64]bool{}
			for range 1 + rnd.IntN(60) {
				from := rnd.Int64N(200)
				r := run{from, from + rnd.Int64N(9)}
				s = s.add(r)
				for o := r.from; o < r.to; o++ {
					set[o] = true
				}
			}
			low := rnd.Int64N(100)
			s = s.above(low)
			for o := range int64(220) {
				require.Equal(t, set[o] && o >= low, s.has(o), "%d in %v above %d", o, s, low)
			}
			requireTidy(t, s, low)
			got, err := decodeRuns(s.encode(nil, low), low)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(s), fmt.Sprint(got))
		}
	})

	t.Run("TakeTheShorterEncoding", func(t *testing.T) {
		t.Parallel()
		var every2nd, far runs
		for o := int64(1); o < 10000; o += 2 {
			every2nd = every2nd.add(run{o, o + 1})
		}
		far = far.add(run{1 << 40, 1<<40 + 5000})
		require.Empty(t, runs(nil).encode(nil, 7))
		require.Equal(t, byte(asBitmap), every2nd.encode(nil, 0)[0])
		require.Len(t, every2nd.encode(nil, 0), 1251)
		require.Equal(t, byte(asRuns), far.encode(nil, 0)[0])
		require.Len(t, far.encode(nil, 0), 9)
	})

	t.Run("RefuseWhatNobodyWrote", func(t *testing.T) {
		t.Parallel()
		for name, b := range map[string][]byte{
			"unknown encoding":     {3, 1, 1},
			"no bitmap":            {asBitmap},
			"bitmap with a tail":   {asBitmap, 1, 0},
			"no run":               {asRuns},
			"half a run":           {asRuns, 1},
			"number without end":   {asRuns, 1, 0x80},
			"number above 64 bits": {asRuns, 1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1},
			"empty run":            {asRuns, 1, 0},
			"touching runs":        {asRuns, 1, 1, 0, 1},
			"beyond the end":       {asRuns, 1, 255, 255, 255, 255, 255, 255, 255, 255, 127},
		} {
			_, err := decodeRuns(b, 1)
			require.ErrorIs(t, err, errOffsets, name)
		}
		_, err := decodeRuns([]byte{asBitmap, 255}, math.MaxInt64-3)
		require.ErrorIs(t, err, errOffsets)
	})
}

func requireTidy(t *testing.T, s runs, low int64) {
	t.Helper()
	at := low - 1
	for _, r := range s {
		require.Less(t, at, r.from, "%v above %d", s, low)
		require.Less(t, r.from, r.to)
		at = r.to
	}
}

func FuzzDecodeRuns(f *testing.F) {
	f.Add([]byte{}, int64(0))
	f.Add([]byte{asBitmap, 0b10110, 0, 128}, int64(77))
	f.Add([]byte{asRuns, 1, 2, 3, 4}, int64(1<<40))
	f.Add([]byte{asRuns, 0, 1}, int64(math.MaxInt64-1))
	f.Fuzz(func(t *testing.T, b []byte, low int64) {
		if low < 0 {
			return
		}
		s, err := decodeRuns(b, low)
		if err != nil {
			require.ErrorIs(t, err, errOffsets)
			return
		}
		requireTidy(t, s, low)
		again, err := decodeRuns(s.encode(nil, low), low)
		require.NoError(t, err)
		require.Equal(t, s, again)
	})
}

package dlq

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLatest_CostsSome100BytesALetter(t *testing.T) {
	const letters = 200_000
	e := &Entry{Written: time.UnixMilli(1), Envelope: Envelope{Origin: Coordinates{Topic: "orders"}}}
	before := heap()
	seen := latest{}
	for i := range int64(letters) {
		e.Envelope.Origin.Offset = i
		seen.see(e)
	}
	used := heap() - before
	require.Len(t, seen, letters)
	require.Less(t, used/letters, int64(150), "a million letters are to fit into memory")
	t.Logf("%d bytes a letter", used/letters)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestLatest_IsOneOfAll(t *testing.T) {
	t.Parallel()
	at := func(replays int, written int64, partition int32, offset int64) *Entry {
		return &Entry{
			Partition: partition, Offset: offset, Written: time.UnixMilli(written),
			Envelope: Envelope{Origin: Coordinates{Topic: "orders"}, Replays: replays},
		}
	}
	inOrder := []*Entry{at(0, 1, 0, 0), at(0, 2, 0, 0), at(0, 2, 1, 0), at(0, 2, 1, 1), at(1, 0, 0, 5)}
	for _, first := range inOrder {
		seen := latest{} // whichever comes first
		seen.see(first)
		for _, e := range inOrder {
			seen.see(e)
		}
		for i, e := range inOrder {
			if i == len(inOrder)-1 {
				require.Nil(t, seen.than(e))
				continue
			}
			require.Equal(t, &Coordinates{Topic: "", Partition: 0, Offset: 5}, seen.than(e))
		}
	}
}

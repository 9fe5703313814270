package schedule

import (
	"maps"
	"slices"

	"pgregory.net/rapid"
)

const (
	mostRecords = 40
	mostKeys    = 6
	mostLives   = 4 // fewer than it takes to convict a record of killing processes
)

// draw gives a random schedule. What is drawn as 0 is the simplest: shrinking goes there.
func draw(t *rapid.T, kind, store string) schedule {
	s := schedule{
		Kind: kind, Store: store,
		Order:      rapid.SampledFrom([]string{byKey, byKey, byKey, byPartition, unordered}).Draw(t, "order"),
		Partitions: rapid.IntRange(1, 3).Draw(t, "partitions"),
		MaxBatch:   rapid.SampledFrom([]int{1, 2, 3, 7, 50}).Draw(t, "max batch"),
		Lanes:      rapid.IntRange(1, 3).Draw(t, "lanes"),
		Writers:    rapid.IntRange(1, 3).Draw(t, "writers"),
	}
	bag, keys := bagOf(kind), rapid.IntRange(1, mostKeys).Draw(t, "keys")
	least := rapid.IntRange(1, mostRecords/2).Draw(t, "least")
	drawn := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) drawnRec { return drawRec(t, bag, keys) }), least, mostRecords).Draw(t, "records")
	for i, d := range drawn {
		s.Records = append(s.Records, d.on(s.Records, i))
	}
	s.Late = rapid.IntRange(0, len(s.Records)).Draw(t, "late")
	s.Lives = rapid.SliceOfN(rapid.Custom(drawLife), 0, mostLives).Draw(t, "lives")
	return s
}

// bagOf has every fate of a kind of route as often as it is to be drawn, the healthy one first.
func bagOf(kind string) []string {
	all := maps.Clone(fates)
	if kind == calls {
		maps.Copy(all, callFates)
	}
	bag := slices.Repeat([]string{"ok"}, all["ok"].weight)
	for _, do := range slices.Sorted(maps.Keys(all)) {
		if do != "ok" {
			bag = append(bag, slices.Repeat([]string{do}, all[do].weight)...)
		}
	}
	return bag
}

// drawnRec is a record that may repeat an earlier one.
type drawnRec struct {
	rec
	again int // 0: it is one of its own
	how   int
}

// How a record repeats another.
const (
	same      = iota // a producer's duplicate
	elsewhere        // under another key, and so perhaps on another partition
	otherwise        // with other bytes: an id conflict
)

func drawRec(t *rapid.T, bag []string, keys int) drawnRec {
	d := drawnRec{rec: rec{
		Do:  rapid.SampledFrom(bag).Draw(t, "do"),
		Key: rapid.IntRange(0, keys-1).Draw(t, "key"),
		Tx:  rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 0, 0, committedTx, abortedTx}).Draw(t, "tx"),
	}}
	if rapid.IntRange(0, 7).Draw(t, "keyless") == 7 {
		d.Key = -1 - d.Key
	}
	if most := fateOf(d.Do).most; most > 0 {
		d.K = rapid.IntRange(1, most).Draw(t, "k")
	}
	if rapid.IntRange(0, 5).Draw(t, "repeats") == 5 {
		d.again = rapid.IntRange(1, mostRecords).Draw(t, "again")
		d.how = rapid.SampledFrom([]int{same, same, same, elsewhere, otherwise}).Draw(t, "how")
	} else if rapid.IntRange(0, 15).Draw(t, "anonymous") == 15 {
		d.again = -1
	}
	return d
}

// on makes the record, given those before it.
func (d drawnRec) on(before []rec, i int) rec {
	r := d.rec
	r.ID = i + 1
	switch {
	case d.again < 0:
		r.ID = 0
	case d.again > 0 && i > 0:
		first := before[(d.again-1)%i]
		if first.ID == 0 {
			break
		}
		r.ID, r.Do, r.K, r.Pad = first.ID, first.Do, first.K, first.Pad
		if d.how != elsewhere {
			r.Key = first.Key
		}
		if d.how == otherwise {
			r.Pad = i + 1
		}
	}
	return r
}

func drawLife(t *rapid.T) life {
	return life{
		Overlap: rapid.Bool().Draw(t, "overlap"),
		Events:  rapid.SliceOfN(rapid.Custom(drawEvent), 1, 3).Draw(t, "events"),
	}
}

func drawEvent(t *rapid.T) event {
	e := event{
		On: rapid.SampledFrom([]string{
			onCommit, onSent, onCommitted, onHandle, onOffsets, onOffsetsOK, onProduce, onProduced, onFetched, onQuery, onAnswer, onRequest,
		}).Draw(t, "on"),
		Do: rapid.SampledFrom([]string{crash, crash, stop, isolate, cut, cut, down}).Draw(t, "what"),
	}
	most := 4
	switch e.On {
	case onQuery, onAnswer, onRequest:
		most = 60
	case onHandle:
		most = 20
	}
	e.N = rapid.IntRange(1, most).Draw(t, "n")
	return e
}

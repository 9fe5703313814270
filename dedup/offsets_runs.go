package dedup

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// run is offsets side by side: from, and up to but without to.
type run struct{ from, to int64 }

// runs is a set of offsets: sorted, none empty, none touching the next.
type runs []run

// find gives the index of the first run that ends above at.
func (s runs) find(at int64) int {
	i, _ := slices.BinarySearchFunc(s, at, func(r run, at int64) int {
		if r.to <= at {
			return -1
		}
		return 1
	})
	return i
}

func (s runs) has(offset int64) bool {
	i := s.find(offset)
	return i < len(s) && s[i].from <= offset
}

// add gives s with one run more, in s's memory as far as that goes. As a rule it goes to the end.
func (s runs) add(r run) runs {
	if r.from >= r.to {
		return s
	}
	if n := len(s); n > 0 && s[n-1].to == r.from {
		s[n-1].to = r.to
		return s
	}
	i, _ := slices.BinarySearchFunc(s, r.from, func(x run, from int64) int { return cmp.Compare(x.to, from) })
	j := i
	for j < len(s) && s[j].from <= r.to {
		r.from, r.to = min(r.from, s[j].from), max(r.to, s[j].to)
		j++
	}
	return slices.Replace(s, i, j, r)
}

// above gives what of s is at or above low, in s's memory.
func (s runs) above(low int64) runs {
	s = s[s.find(low):]
	if len(s) > 0 {
		s[0].from = max(s[0].from, low)
	}
	return s
}

// end is behind the last of s, low if there is none.
func (s runs) end(low int64) int64 {
	if len(s) == 0 {
		return low
	}
	return s[len(s)-1].to
}

// The encodings of a set above a low, after one byte that says which. The empty set is no byte at all.
const (
	asBitmap = 1 // bit i of byte n is low + 8n + i; the last byte is not zero
	asRuns   = 2 // uvarints: from the end of the run before, or low, to this one; then how long it is
)

// encode appends the shorter of the two encodings. A claim's window bounds it: each gap is a record that it has in hand,
// so it is 2 to 10 bytes for each of them, or an eighth of a byte for each offset between the first and the last.
func (s runs) encode(b []byte, low int64) []byte {
	if len(s) == 0 {
		return b
	}
	start := len(b)
	b = append(b, asRuns)
	at := low
	bitmap := (s.end(low)-low-1)/8 + 1
	for _, r := range s {
		b = binary.AppendUvarint(b, uint64(r.from-at))
		b = binary.AppendUvarint(b, uint64(r.to-r.from))
		at = r.to
		if int64(len(b)-start) > bitmap {
			return s.encodeBitmap(b[:start], low, int(bitmap))
		}
	}
	return b
}

func (s runs) encodeBitmap(b []byte, low int64, size int) []byte {
	b = append(b, asBitmap)
	start := len(b)
	b = slices.Grow(b, size)[:start+size]
	set := b[start:]
	clear(set)
	for _, r := range s {
		for from := r.from - low; from < r.to-low; {
			n := min(8-from%8, r.to-low-from)
			set[from/8] |= byte((1<<n - 1) << (from % 8))
			from += n
		}
	}
	return b
}

// errOffsets is the cause of whatever is wrong with a stored set: nobody can tell what is done, so nothing runs.
var errOffsets = errors.New("the offset store's row cannot be read")

// decodeRuns reads a set above low. It takes what encode writes, and nothing that would be the same in another form.
func decodeRuns(b []byte, low int64) (runs, error) {
	if len(b) == 0 {
		return nil, nil
	}
	switch b[0] {
	case asBitmap:
		return decodeBitmap(b[1:], low)
	case asRuns:
		return decodeVarints(b[1:], low)
	}
	return nil, fmt.Errorf("%w: encoding %d is of a newer version", errOffsets, b[0])
}

func decodeBitmap(set []byte, low int64) (s runs, err error) {
	if len(set) == 0 || set[len(set)-1] == 0 {
		return nil, fmt.Errorf("%w: a bitmap that does not end with a bit", errOffsets)
	}
	if last := 8*int64(len(set)-1) + int64(bits.Len8(set[len(set)-1])); low > math.MaxInt64-last {
		return nil, fmt.Errorf("%w: %d bytes of bitmap above offset %d", errOffsets, len(set), low)
	}
	for i, x := range set {
		at := low + 8*int64(i)
		for x != 0 {
			from := bits.TrailingZeros8(x)
			n := bits.TrailingZeros8(^(x >> from))
			s = s.add(run{at + int64(from), at + int64(from+n)})
			x &^= byte((1<<n - 1) << from)
		}
	}
	return s, nil
}

func decodeVarints(b []byte, low int64) (s runs, err error) {
	at := low
	for first := true; len(b) > 0 || first; first = false {
		var gap, length uint64
		if gap, b, err = uvarint(b); err != nil {
			return nil, err
		}
		if length, b, err = uvarint(b); err != nil {
			return nil, err
		}
		if length == 0 || gap == 0 && !first {
			return nil, fmt.Errorf("%w: an empty run, or one that touches the next", errOffsets)
		}
		left := uint64(math.MaxInt64 - at)
		if gap > left || length > left-gap {
			return nil, fmt.Errorf("%w: a run beyond the last offset", errOffsets)
		}
		from := at + int64(gap)
		at = from + int64(length)
		s = append(s, run{from, at})
	}
	return s, nil
}

func uvarint(b []byte) (uint64, []byte, error) {
	x, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, fmt.Errorf("%w: it ends in the middle of a number", errOffsets)
	}
	return x, b[n:], nil
}

// without gives what of s is not in other; s itself if that is all.
func (s runs) without(other runs) runs {
	var left runs
	for _, r := range s {
		for from := r.from; from < r.to; {
			i := other.find(from)
			if i == len(other) || other[i].from >= r.to {
				left = append(left, run{from, r.to})
				break
			}
			if other[i].from > from {
				left = append(left, run{from, other[i].from})
			}
			from = other[i].to
		}
	}
	return left
}

package parking

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/headrace/headrace/record"
)

// version begins an envelope: whoever reads one of a later build says so, and guesses nothing.
const version = 1

// ErrEnvelope says that bytes are no envelope of this build. Match with errors.Is.
var ErrEnvelope = errors.New("not an envelope of a parked record")

// Flags of an envelope.
const (
	hasKey = 1 << iota // an empty key is a key
	hasValue
	isReplay
	fromCoordinates
)

// Encode writes r down, with its identity, so that Decode gives the same record again, byte for byte: a nil key and an
// empty one, a tombstone and an empty value, headers in order, with duplicates and nil values. What belongs to a delivery
// (attempts, errors, the event) is not in it, nor is a replayed letter's envelope, which must be among the headers.
//
//	version | flags | topic, topic id, partition, offset, follows, leader epoch, timestamp (ms)
//	        | identity: text, key, value hash, coordinates, place
//	        | key | value | headers: count, then name and value each
//
// Numbers are varints; a text or bytes have their length before them, a nil header value has length 0 and any other its
// own + 1.
func Encode(r *record.Record) []byte {
	buf := make([]byte, 0, sizeOf(r))
	buf = append(buf, version, flags(r))
	buf = appendText(buf, r.Topic)
	buf = append(buf, r.TopicID[:]...)
	for _, n := range [...]int64{int64(r.Partition), r.Offset, r.Follows, int64(r.LeaderEpoch), r.Timestamp.UnixMilli()} {
		buf = binary.AppendVarint(buf, n)
	}
	id := &r.Identity
	buf = appendText(buf, id.ID)
	buf = append(buf, id.Key[:]...)
	buf = binary.BigEndian.AppendUint64(buf, uint64(id.ValueHash))
	buf = binary.BigEndian.AppendUint64(buf, uint64(id.Coordinates))
	buf = append(buf, id.Place[:]...)
	buf = appendText(buf, r.Key)
	buf = appendText(buf, r.Value)
	buf = binary.AppendUvarint(buf, uint64(len(r.Headers)))
	for _, h := range r.Headers {
		buf = appendText(buf, h.Key)
		buf = appendNilable(buf, h.Value)
	}
	return buf
}

func sizeOf(r *record.Record) int {
	n := 160 + len(r.Topic) + len(r.Identity.ID) + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += 10 + len(h.Key) + len(h.Value)
	}
	return n
}

func flags(r *record.Record) (f byte) {
	set := func(is bool, flag byte) {
		if is {
			f |= flag
		}
	}
	set(r.Key != nil, hasKey)
	set(r.Value != nil, hasValue)
	set(r.Replay, isReplay)
	set(r.Identity.FromCoordinates, fromCoordinates)
	return f
}

func appendText[T string | []byte](buf []byte, s T) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(s))), s...)
}

func appendNilable(buf, b []byte) []byte {
	if b == nil {
		return append(buf, 0)
	}
	return append(binary.AppendUvarint(buf, uint64(len(b))+1), b...)
}

// Decode reads what Encode wrote. The record shares no memory with b. The error is an ErrEnvelope for anything else, also
// for bytes left over.
func Decode(b []byte) (*record.Record, error) {
	d := &decoder{left: b}
	v, f := d.byte(), d.byte()
	if d.err == nil && v != version {
		return nil, fmt.Errorf("%w: it is of version %d, this build reads %d (deploy a newer build)", ErrEnvelope, v, version)
	}
	r := &record.Record{Replay: f&isReplay != 0}
	r.Topic = string(d.text())
	d.fixed(r.TopicID[:])
	r.Partition, r.Offset, r.Follows, r.LeaderEpoch = d.int32(), d.varint(), d.varint(), d.int32()
	r.Timestamp = time.UnixMilli(d.varint())
	d.identity(&r.Identity)
	r.Identity.FromCoordinates = f&fromCoordinates != 0
	r.Key = d.bytesIf(f&hasKey != 0)
	r.Value = d.bytesIf(f&hasValue != 0)
	r.Headers = d.headers()
	if d.err == nil && (len(d.left) > 0 || f >= fromCoordinates<<1) {
		d.fail("it has more than its fields")
	}
	if d.err != nil {
		return nil, d.err
	}
	return r, nil
}

func (d *decoder) identity(id *record.Identity) {
	id.ID = string(d.text())
	d.fixed(id.Key[:])
	id.ValueHash, id.Coordinates = d.int64(), d.int64()
	d.fixed(id.Place[:])
}

// headers allocates no more than the bytes that are there can be.
func (d *decoder) headers() []record.Header {
	n := d.uvarint()
	if n > uint64(len(d.left))/2 {
		d.fail("it has fewer headers than it says")
		return nil
	}
	if n == 0 {
		return nil
	}
	hs := make([]record.Header, n)
	for i := range hs {
		hs[i] = record.Header{Key: string(d.text()), Value: d.nilable()}
	}
	return hs
}

// decoder takes an envelope apart. After its first error it gives zero values.
type decoder struct {
	left []byte
	err  error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrEnvelope, what)
	}
	d.left = nil
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.left)) {
		d.fail("it ends early")
		return nil
	}
	b := d.left[:n]
	d.left = d.left[n:]
	return b
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) fixed(into []byte) { copy(into, d.take(uint64(len(into)))) }

func (d *decoder) int64() int64 {
	var b [8]byte
	d.fixed(b[:])
	return int64(binary.BigEndian.Uint64(b[:]))
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.left)
	return took(d, v, n)
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.left)
	return took(d, v, n)
}

// took accepts a varint in its one shortest form, so that equal records have equal envelopes.
func took[N int64 | uint64](d *decoder, v N, n int) N {
	if n <= 0 || n > 1 && d.left[n-1] == 0 {
		d.fail("a number in it cannot be read")
		return 0
	}
	d.left = d.left[n:]
	return v
}

func (d *decoder) int32() int32 {
	v := d.varint()
	if v < math.MinInt32 || v > math.MaxInt32 {
		d.fail("a number in it is too large")
		return 0
	}
	return int32(v)
}

func (d *decoder) text() []byte { return d.take(d.uvarint()) }

// bytesIf is what a flag says is there: an empty value is not a nil one.
func (d *decoder) bytesIf(is bool) []byte {
	b := d.text()
	switch {
	case is:
		return append(make([]byte, 0, len(b)), b...)
	case len(b) > 0:
		d.fail("it has bytes where its flags say that there are none")
	}
	return nil
}

func (d *decoder) nilable() []byte {
	n := d.uvarint()
	if n == 0 {
		return nil
	}
	b := d.take(n - 1)
	return append(make([]byte, 0, len(b)), b...)
}

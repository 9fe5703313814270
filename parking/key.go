package parking

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/headrace/headrace/record"
)

// KeyID names the line in which r stands: 64 bits of a SHA-256 of topic id, partition and key. Where byKey is false, or r
// has no key, it depends on no other record, and its line is its own: the hash is of its coordinates. An empty key is a
// key.
//
// Two keys with the same bits wait for each other, which is all that a collision does.
func KeyID(r *record.Record, byKey bool) int64 {
	own := !byKey || r.Key == nil
	buf := make([]byte, 0, 64)
	buf = append(buf, r.TopicID[:]...)
	buf = binary.BigEndian.AppendUint32(buf, uint32(r.Partition))
	if own {
		buf = binary.BigEndian.AppendUint64(append(buf, 'o'), uint64(r.Offset))
	} else {
		buf = append(append(buf, 'k'), r.Key...)
	}
	sum := sha256.Sum256(buf)
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
)

// place is where a record stands in its topic.
type place struct {
	partition int32
	offset    int64
}

func placeOf(r *kgo.Record) place { return place{r.Partition, r.Offset} }

func (p place) String() string { return fmt.Sprintf("%d/%d", p.partition, p.offset) }

// coordinates are a place as the inbox stores it, and the id of a record that has none of its own.
func coordinates(topicID uuid.UUID, p place) (int64, uuid.UUID) {
	text := append([]byte("headrace coordinates"), topicID[:]...)
	text = binary.BigEndian.AppendUint32(text, uint32(p.partition))
	text = binary.BigEndian.AppendUint64(text, uint64(p.offset))
	sum := sha256.Sum256(text)
	return int64(binary.BigEndian.Uint64(sum[:8])), idAt(topicID, p)
}

// idAt is 60 bits of the partition and 62 of the offset.
func idAt(topicID uuid.UUID, p place) uuid.UUID {
	stream := binary.BigEndian.Uint64(topicID[:8]) ^ binary.BigEndian.Uint64(topicID[8:])
	stream += uint64(p.partition) * 0x9E3779B97F4A7C15
	return version8(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, stream), uint64(p.offset)))
}

const (
	nilUUID = "00000000-0000-0000-0000-000000000000"
	mostID  = 1024
)

// identity is what a producer named the record, "" for nothing: ce_id, with its source unless it is a UUID, else
// Watermill's header. One that is too long is none either.
func identity(r *kgo.Record) string {
	id := text(r, "ce_id")
	if _, err := uuid.Parse(id); id != "" && (err != nil || len(id) != len(nilUUID)) {
		if source := text(r, "ce_source"); source != "" {
			id = source + "#" + id
		}
	}
	if id == "" || id == nilUUID {
		id = text(r, "_watermill_message_uuid")
	}
	if id == nilUUID || len(id) > mostID {
		return ""
	}
	return id
}

// text is the first header of this name; bytes that are no text are written in hexadecimal.
func text(r *kgo.Record, name string) string {
	i := slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == name })
	switch {
	case i < 0:
		return ""
	case !utf8.Valid(r.Headers[i].Value):
		return hex.EncodeToString(r.Headers[i].Value)
	}
	return string(r.Headers[i].Value)
}

// keyOf is an identity as the inbox stores it.
func keyOf(id string) uuid.UUID {
	if u, err := uuid.Parse(id); err == nil && len(id) == len(nilUUID) {
		return u
	}
	sum := sha256.Sum256([]byte(id))
	return version8(sum[:16])
}

func version8(b []byte) uuid.UUID {
	u := uuid.UUID(b)
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return u
}

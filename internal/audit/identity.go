package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/headrace/headrace/record"
)

// Identity says where a route's records have their ids. The zero value is the convention: ce_id (with ce_source), then
// _watermill_message_uuid.
type Identity struct {
	// Header is a header's name, Field a path into a JSON value, as order.id.
	Header, Field string
}

const (
	ceID, ceSource = "ce_id", "ce_source"
	watermillUUID  = "_watermill_message_uuid"
	longest        = 1024
)

// of is by what the inbox knows a record: its id, or its place where it has none that can be read.
func (i Identity) of(r *record.Record, place uuid.UUID) uuid.UUID {
	text := i.text(r)
	if text == "" || text == uuid.Nil.String() || len(text) > longest {
		return place
	}
	return keyOf(text)
}

func (i Identity) text(r *record.Record) string {
	switch {
	case i.Header != "":
		return header(r, i.Header)
	case i.Field != "":
		return field(r.Value, strings.Split(i.Field, "."))
	}
	if id := header(r, ceID); id != "" {
		if source := header(r, ceSource); source != "" && !isUUID(id) {
			return source + "#" + id
		}
		return id
	}
	return header(r, watermillUUID)
}

func header(r *record.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			if !utf8.Valid(h.Value) {
				return hex.EncodeToString(h.Value)
			}
			return string(h.Value)
		}
	}
	return ""
}

func field(value []byte, path []string) string {
	raw := json.RawMessage(value)
	for _, step := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil {
			return ""
		}
		raw = object[step]
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	if n := strings.TrimSpace(string(raw)); n != "" && strings.ContainsAny(n[:1], "-0123456789") {
		return n
	}
	return ""
}

func isUUID(s string) bool { return len(s) == 36 && uuid.Validate(s) == nil }

// keyOf is an id as the inbox stores it: a UUID as it is, any other text by its hash.
func keyOf(id string) uuid.UUID {
	if isUUID(id) {
		return uuid.MustParse(id)
	}
	sum := sha256.Sum256([]byte(id))
	return version8(sum[:16])
}

func version8(b []byte) uuid.UUID {
	u := uuid.UUID(b)
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return u
}

// placeOf is a place as the inbox stores it: a number, and the id of what stands there and has no other.
func placeOf(topic uuid.UUID, partition int32, offset int64) (int64, uuid.UUID) {
	text := append([]byte("headrace coordinates"), topic[:]...)
	text = binary.BigEndian.AppendUint32(text, uint32(partition))
	text = binary.BigEndian.AppendUint64(text, uint64(offset))
	sum := sha256.Sum256(text)
	return int64(binary.BigEndian.Uint64(sum[:8])), idAt(topic, partition, offset)
}

// idAt is 60 bits of the partition and 62 of the offset.
func idAt(topic uuid.UUID, partition int32, offset int64) uuid.UUID {
	stream := binary.BigEndian.Uint64(topic[:8]) ^ binary.BigEndian.Uint64(topic[8:])
	stream += uint64(partition) * 0x9E3779B97F4A7C15
	id := binary.BigEndian.AppendUint64(nil, stream)
	return version8(binary.BigEndian.AppendUint64(id, uint64(offset)))
}

func valueHash(value []byte) int64 {
	if value == nil {
		return 0
	}
	sum := sha256.Sum256(value)
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// linesOf are the lines in which a record may be parked: its key's, and its own.
func linesOf(topic uuid.UUID, partition int32, offset int64, key []byte) [2]int64 {
	base := binary.BigEndian.AppendUint32(append([]byte(nil), topic[:]...), uint32(partition))
	line := func(rest ...byte) int64 {
		sum := sha256.Sum256(append(append([]byte(nil), base...), rest...))
		return int64(binary.BigEndian.Uint64(sum[:8]))
	}
	own := line(binary.BigEndian.AppendUint64([]byte{'o'}, uint64(offset))...)
	if key == nil {
		return [2]int64{own, own}
	}
	return [2]int64{line(append([]byte{'k'}, key...)...), own}
}

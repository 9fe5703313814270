package dedup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// maxID bounds an identity in bytes: it travels in headers and logs.
const maxID = 1024

// errIdentity is the cause of every unreadable identity.
var errIdentity = errors.New("identity cannot be read")

// Resolver finds the identity that a producer gave a record: ok is false where there is none, and err says that there
// is one that cannot be read. It must depend on the record's data alone, or a redelivery would be another record. An
// empty id is none.
type Resolver func(r *record.Record) (id string, ok bool, err error)

// Header takes the identity from the first header with this name.
func Header(name string) Resolver {
	return func(r *record.Record) (string, bool, error) {
		v, ok := r.Header(name)
		if !ok || len(v) == 0 {
			return "", false, nil
		}
		if !utf8.Valid(v) { // a UUID's raw bytes, for one
			return hex.EncodeToString(v), true, nil
		}
		return string(v), true, nil
	}
}

// WatermillUUID takes Watermill's message UUID from the header in which watermill-kafka puts it.
func WatermillUUID() Resolver { return Header(record.UUIDHeader) }

// CloudEvents takes the identity of a CloudEvent in Kafka's binary mode. CloudEvents promises that source and id are
// unique together, so unless the id is a UUID the source is part of the identity.
func CloudEvents() Resolver {
	id, source := Header("ce_id"), Header("ce_source")
	return func(r *record.Record) (string, bool, error) {
		text, ok, err := id(r)
		if !ok || err != nil || isUUID(text) {
			return text, ok, err
		}
		if from, ok, _ := source(r); ok {
			text = from + "#" + text
		}
		return text, true, nil
	}
}

// Field takes the identity from a JSON value: path names the field, with dots between the levels ("order.id"). A
// missing field, null and "" are no identity; a value that is no JSON object, or a field that is neither text nor a
// number, cannot be read.
func Field(path string) Resolver {
	steps := strings.Split(path, ".")
	return func(r *record.Record) (string, bool, error) {
		if r.Value == nil {
			return "", false, nil
		}
		raw, err := dig(r.Value, steps)
		if err != nil {
			return "", false, fmt.Errorf("%w: field %q: %w", errIdentity, path, err)
		}
		text, err := scalar(raw)
		if err != nil {
			return "", false, fmt.Errorf("%w: field %q: %w", errIdentity, path, err)
		}
		return text, text != "", nil
	}
}

func dig(raw json.RawMessage, steps []string) (json.RawMessage, error) {
	for _, step := range steps {
		if isNull(raw) {
			return nil, nil
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			return nil, errors.New("not a JSON object") // json's own text would quote the payload
		}
		raw = object[step]
	}
	return raw, nil
}

// scalar keeps a number as it was written: 1 and 1.0 are different identities, and 2^53+1 is not rounded.
func scalar(raw json.RawMessage) (string, error) {
	if isNull(raw) {
		return "", nil
	}
	switch c := raw[0]; {
	case c == '"':
		var text string
		err := json.Unmarshal(raw, &text)
		return text, err
	case c == '-' || '0' <= c && c <= '9':
		return string(raw), nil
	}
	return "", errors.New("neither text nor a number")
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || bytes.Equal(raw, []byte("null")) }

// DefaultIdentity are the conventions that need no configuration: CloudEvents' ce_id, then Watermill's
// _watermill_message_uuid.
func DefaultIdentity() []Resolver { return []Resolver{CloudEvents(), WatermillUUID()} }

// Identify sets r.Identity, once a delivery and before anything may change the value. The first resolver of chain that
// finds an identity decides; none makes it the record's coordinates, which recognise a redelivery but no producer's
// duplicate. An identity that cannot be read is an error and leaves the coordinates too: under them the record is dead.
//
// The nil UUID, which a careless producer gives to all its records, is no identity. A record of the replay topic is
// IdentifyReplay's: here it would be known by where its letter was replayed to.
func Identify(r *record.Record, chain ...Resolver) error {
	return identify(r, here(r), chain)
}

// identify falls back on spot, where the record was first read. What it is at, for its coordinates, is always here.
func identify(r *record.Record, spot spot, chain []Resolver) error {
	id, err := resolve(r, chain)
	at := spot.place()
	if id.ID == "" {
		id = record.Identity{ID: spot.String(), Key: at.key, FromCoordinates: true}
	}
	r.Identity = delivered(r, id, spot, at)
	return err
}

// delivered completes an identity with where the record was first read, and with what is of this delivery. As a rule that
// is one place, and one hash.
func delivered(r *record.Record, id record.Identity, first spot, at place) record.Identity {
	id.Place, id.Coordinates = at.key, at.hash
	if first != here(r) {
		id.Coordinates = placeOf(r).hash
	}
	id.ValueHash = hashValue(r.Value)
	return id
}

func resolve(r *record.Record, chain []Resolver) (record.Identity, error) {
	for _, find := range chain {
		id, ok, err := ask(find, r)
		switch {
		case err != nil:
			return record.Identity{}, err
		case !ok || id == "" || id == nilUUID:
			continue
		case len(id) > maxID:
			return record.Identity{}, fmt.Errorf("%w: %d bytes, more than %d", errIdentity, len(id), maxID)
		}
		return record.Identity{ID: id, Key: KeyOf(id)}, nil
	}
	return record.Identity{}, nil
}

// ask calls a resolver. One that panics on a record cannot read it.
func ask(find Resolver, r *record.Record) (id string, ok bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fault.Recovered(p)
		}
	}()
	id, ok, err = find(r)
	return id, ok, fault.Usable(err)
}

// KeyOf is how the inbox stores an identity: a UUID as it is, any other text as the UUIDv8 of its SHA-256.
func KeyOf(id string) uuid.UUID {
	if len(id) == canonical {
		if u, err := uuid.Parse(id); err == nil {
			return u
		}
	}
	sum := sha256.Sum256([]byte(id))
	return uuidV8(sum[:16])
}

// KeyAt is how the inbox stores a record that is known by its place: it has no identity that can be read, or one that is
// another record's.
func KeyAt(topicID uuid.UUID, partition int32, offset int64) uuid.UUID {
	return spot{topicID, partition, offset}.place().key
}

// hashValue is of a record's value as it was delivered. A tombstone (nil) and an empty value differ.
func hashValue(value []byte) int64 {
	if value == nil {
		return 0
	}
	sum := sha256.Sum256(value)
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// canonical is the length of a UUID's usual text. Other notations (urn:uuid:…, braces) are other identities.
const (
	canonical = 36
	nilUUID   = "00000000-0000-0000-0000-000000000000"
)

func isUUID(s string) bool {
	return len(s) == canonical && uuid.Validate(s) == nil
}

func uuidV8(b []byte) uuid.UUID {
	u := uuid.UUID(b)
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return u
}

// place is where a record stands, as the inbox stores it.
type place struct {
	hash int64
	key  uuid.UUID
}

func placeOf(r *record.Record) place { return here(r).place() }

// spot is where a record was read.
type spot struct {
	topic     uuid.UUID
	partition int32
	offset    int64
}

func here(r *record.Record) spot { return spot{r.TopicID, r.Partition, r.Offset} }

func (s spot) place() place { return place{s.hash(), s.key()} }

// hash starts with a word of ours, so that no other text that is hashed is a record's coordinates.
func (s spot) hash() int64 {
	const tag = "headrace coordinates"
	var b [len(tag) + 16 + 4 + 8]byte
	n := copy(b[:], tag)
	n += copy(b[n:], s.topic[:])
	binary.BigEndian.PutUint32(b[n:], uint32(s.partition))
	binary.BigEndian.PutUint64(b[n+4:], uint64(s.offset))
	sum := sha256.Sum256(b[:])
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// key rises with the offset: a UUIDv8 of 60 bits for the partition and 62 for the offset. Each partition's rows then stand
// side by side in the inbox's index, where a hash would touch another of its pages with every row.
func (s spot) key() (u uuid.UUID) {
	binary.BigEndian.PutUint64(u[:8], s.stream())
	u[6] = u[6]&0x0f | 0x80
	binary.BigEndian.PutUint64(u[8:], uint64(s.offset)&(1<<62-1)|1<<63)
	return u
}

// stream is of a topic's partition. Topic ids are random (KIP-516). Multiples of the golden ratio are far enough from each
// other that no two of a topic's 2^31 partitions share the 60 bits that are kept.
func (s spot) stream() uint64 {
	const golden = 0x9E3779B97F4A7C15
	topic := binary.BigEndian.Uint64(s.topic[:8]) ^ binary.BigEndian.Uint64(s.topic[8:])
	return topic + uint64(uint32(s.partition))*golden
}

func (s spot) String() string {
	return s.topic.String() + "/" + strconv.Itoa(int(s.partition)) + "/" + strconv.FormatInt(s.offset, 10)
}

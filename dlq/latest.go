package dlq

import (
	"crypto/sha256"
	"encoding/binary"
)

// latest remembers of each record which of its letters is the latest: the one that was replayed most often, of these
// the one that was written last. A letter is known by 16 bytes of a hash, so that millions fit into memory.
type latest map[[16]byte]standing

// standing is where a letter stands, and what it is compared by.
type standing struct {
	written, offset int64
	replays         int32
	partition       int32
}

func standingOf(e *Entry) standing {
	return standing{e.Written.UnixMilli(), e.Offset, int32(min(e.Envelope.Replays, 1<<31-1)), e.Partition}
}

// before is a total order.
func (s standing) before(o standing) bool {
	switch {
	case s.replays != o.replays:
		return s.replays < o.replays
	case s.written != o.written:
		return s.written < o.written
	case s.partition != o.partition:
		return s.partition < o.partition
	}
	return s.offset < o.offset
}

// see takes note of a letter.
func (l latest) see(e *Entry) {
	if !e.Envelope.Origin.Known() {
		return // nobody can say whose letter it is: it is one of its own
	}
	key, now := hashOf(e), standingOf(e)
	if then, seen := l[key]; !seen || then.before(now) {
		l[key] = now
	}
}

// than gives where a later letter of e's record stands, nil if e is the latest.
func (l latest) than(e *Entry) *Coordinates {
	if !e.Envelope.Origin.Known() {
		return nil
	}
	s := l[hashOf(e)]
	if s == standingOf(e) {
		return nil
	}
	return &Coordinates{Topic: e.Topic, Partition: s.partition, Offset: s.offset}
}

// hashOf is the same for letters of one record to one route. The record's bytes are part of it: other systems do not
// write the topic's id, and the same place of a topic that was created again is another record's.
func hashOf(e *Entry) [16]byte {
	h := sha256.New()
	env, value := &e.Envelope, sha256.Sum256(e.Value)
	part := func(b []byte) {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(b)))
		h.Write(size[:])
		h.Write(b)
	}
	part([]byte(env.Origin.String()))
	part(env.TopicID[:])
	part([]byte(env.Group))
	part([]byte(env.Route))
	part(e.Key)
	part(value[:])
	return [16]byte(h.Sum(nil))
}

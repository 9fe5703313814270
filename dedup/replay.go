package dedup

import (
	"github.com/google/uuid"

	"github.com/headrace/headrace/record"
)

// ReplayOf is what a dead letter's envelope says of the record that died.
type ReplayOf struct {
	// ID is the identity's text, "" where that is Key's.
	ID string
	// Key is the identity as the inbox stores it, the nil UUID for a letter of another system, which knows none.
	Key uuid.UUID
	// Undecodable says that it died because it could not be read. Its Key may be no more than its place then, and its
	// handler never ran, so that it may be known by another identity now.
	Undecodable bool
	// TopicID, Partition and Offset are where the record was first read. The nil UUID: nobody knows.
	TopicID   uuid.UUID
	Partition int32
	Offset    int64
}

// IdentifyReplay is Identify for a record of the replay topic, which keeps the identity of the record that died, also
// where that was its coordinates: so it takes over that one's dead row, and a letter that is replayed twice has one
// effect. Call it with the original headers on r.
//
// One that died because it could not be read, and is known by its place, has perhaps an identity that can be read now:
// chain is asked again, and what it finds decides, so that the record has one effect with those that the producer sent
// under it. That it was dead under its place is over when it has its outcome: Run sees to that.
//
// Where the envelope knows no identity, chain finds one or the coordinates of the first reading are it; where it does not
// know these either, those of r are, and only then a letter that is replayed twice is two records.
func IdentifyReplay(r *record.Record, of ReplayOf, chain ...Resolver) error {
	first := spot{of.TopicID, of.Partition, of.Offset}
	if of.TopicID == uuid.Nil {
		// It says nothing: all letters that lack it would be one record, and have one effect between them.
		first = here(r)
	}
	at := first.place()
	placed := of.Key == at.key
	if of.Key == uuid.Nil || of.Undecodable && placed {
		return identify(r, first, chain)
	}
	id := record.Identity{ID: of.ID, Key: of.Key, FromCoordinates: placed}
	if id.ID == "" || len(id.ID) > maxID {
		id.ID = id.Key.String()
	}
	r.Identity = delivered(r, id, first, at)
	return nil
}

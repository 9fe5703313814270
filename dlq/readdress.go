package dlq

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/google/uuid"

	"github.com/headrace/headrace/kafka"
)

// envelope is the one that a letter is replayed with.
func (r *replayer) envelope(ctx context.Context, e *Entry) (Envelope, error) {
	env := e.Envelope
	env.Replays++
	if e.Format == FormatHeadrace {
		env.Group, env.Route = cmp.Or(env.Group, r.cfg.Group), cmp.Or(r.cfg.ToRoute, env.Route, r.cfg.Route)
		env.Origin.Topic = cmp.Or(env.Origin.Topic, r.cfg.Source)
	} else {
		if err := r.adopt(ctx, e, &env); err != nil {
			return Envelope{}, err
		}
	}
	if env.Reason == IDConflict {
		env.MessageID, env.ID = newID(env), ""
	}
	return env, nil
}

// adopt gives a letter of another system what ours have.
func (r *replayer) adopt(ctx context.Context, e *Entry, env *Envelope) error {
	env.Group, env.Route, env.ID = r.cfg.Group, r.cfg.Route, "" // its identity is for the route to find
	if env.Origin.Topic == "" {
		env.Origin.Topic = r.cfg.Source
	}
	if env.Timestamp.IsZero() {
		env.Timestamp = e.Written
	}
	if !env.Origin.Known() {
		// The place stands in for an identity where the record has none. Nobody knows where the record was, so the
		// letter's own place must do: with none at all, two letters would be one, and the second lost as its duplicate.
		env.TopicID, env.Origin.Partition, env.Origin.Offset = e.TopicID, e.Partition, e.Offset
		env.Latest = e.Place()
		return nil
	}
	env.Latest = env.Origin
	var err error
	env.TopicID, err = r.topicID(ctx, env.Origin.Topic)
	return err
}

// topicID looks the source's id up, so that a record which Headrace has read by itself has the same place here. One of a
// topic that was created again may be taken for another record at its place: the inbox sees other bytes, which is a
// conflict and loses nothing.
func (r *replayer) topicID(ctx context.Context, topic string) (uuid.UUID, error) {
	if id, ok := r.ids[topic]; ok {
		return id, nil
	}
	ids, err := r.admin.TopicIDs(ctx, topic)
	if err != nil && !errors.Is(err, kafka.ErrUnknownTopic) {
		return uuid.Nil, cause(ctx, err)
	}
	r.ids[topic] = ids[topic]
	return ids[topic], nil
}

func newID(env Envelope) uuid.UUID {
	return NewIDAt(env.TopicID, env.Origin.Partition, env.Origin.Offset)
}

// NewIDAt is the identity under which ReplayConfig.NewID lets a record run whose own is another record's. It is made of
// where the record was first read, so that the replay may be repeated: the same record has the same new identity.
func NewIDAt(topicID uuid.UUID, partition int32, offset int64) uuid.UUID {
	b := append([]byte("headrace new id"), topicID[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(partition))
	b = binary.BigEndian.AppendUint64(b, uint64(offset))
	sum := sha256.Sum256(b)
	id := uuid.UUID(sum[:16])
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // version 8: made by a rule of our own
	return id
}

package middleware

import (
	"errors"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/record"
)

// A record of the consumer group's replay topic is a dead letter that somebody replayed. It becomes what it was: its
// envelope goes to Record.Letter, its headers and time are the original ones, and so is its identity, under which the
// inbox knows that it is dead, or was effected meanwhile. Every route of the group reads the topic, and all but one of
// them leave the record alone.

var errNoEnvelope = errors.New("record of a replay topic has no envelope")

// unwrap takes the envelope off r, once a delivery, and says whether r is a letter of this route.
func (rt *Route) unwrap(r *record.Record) (mine, written bool) {
	if r.Letter != nil {
		return true, true
	}
	env, original, ok := dlq.Decode(r.Headers)
	if !ok || env.Group != rt.Group || env.Route != rt.Name {
		return false, ok
	}
	r.Letter, r.Headers = &env, original
	if !env.Timestamp.IsZero() {
		r.Timestamp = env.Timestamp
	}
	return true, true
}

// leave settles a record that is none of this route's. What nobody of us wrote is told of: whoever writes there could
// write letters too.
func (rt *Route) leave(r *record.Record, written bool) {
	if !written {
		rt.report(record.Report{
			Kind: record.ReportReplayWithoutEnvelope, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Err: errNoEnvelope,
			Hint: "it is settled without any effect; only headrace dlq replay should be allowed to write to this topic",
		})
	}
	r.Settle(record.Foreign)
}

// identify gives r its identity: that of the record that died, for one that was replayed.
func (rt *Route) identify(r *record.Record) error {
	env, ok := r.Letter.(*dlq.Envelope)
	if !ok {
		return dedup.Identify(r, rt.Identity...)
	}
	return dedup.IdentifyReplay(r, dedup.ReplayOf{
		ID: env.ID, Key: env.MessageID, Undecodable: env.Reason == dlq.Undecodable, TopicID: env.TopicID, Partition: env.Origin.Partition, Offset: env.Origin.Offset,
	}, rt.Identity...)
}

package middleware

import (
	"fmt"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/record"
)

// A record of the consumer group's replay topic is a dead letter that somebody replayed. It becomes what it was: its
// envelope goes to Record.Letter, its headers and time are the original ones, and so is its identity, under which the
// inbox knows that it is dead, or was effected meanwhile. Every route of the group reads the topic, and all but one of
// them leave the record alone.

// unwrap takes the envelope off r, once a delivery, and says whether r is a letter of this route. The error is of what
// nobody of us wrote. A letter of this group that no route takes up is told of.
func (rt *Route) unwrap(r *record.Record) (mine bool, err error) {
	if r.Letter != nil {
		return true, nil
	}
	env, original, err := dlq.DecodeReplayed(r.Headers)
	if err != nil || env.Group != rt.Group || env.Route != rt.Name {
		if err == nil && env.Group == rt.Group && rt.NotTaken != nil && rt.NotTaken(r.Topic, env.Route) {
			rt.reportNotTaken(r, &env)
		}
		return false, err
	}
	r.Letter, r.Headers = &env, original
	if !env.Timestamp.IsZero() {
		r.Timestamp = env.Timestamp
	}
	return true, nil
}

// reportNotTaken tells of a replay that would look like a success: it was sent, and everybody has left it alone.
func (rt *Route) reportNotTaken(r *record.Record, env *dlq.Envelope) {
	rt.report(record.Report{
		Kind: record.ReportReplayNotTaken, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
		Err: fmt.Errorf("a dead letter was replayed for route %q, and this process runs no route of that name on %q", env.Route, env.Origin.Topic),
		Hint: "nothing was done with it, nor with others for that route; its letter is still there: replay it for the route that has its " +
			"work now (headrace dlq replay --route with the old name and --to-route with the new one, or --as-route put right); while a " +
			"deploy rolls, replay it again after that",
	})
}

// leave settles a record that is none of this route's. What nobody of us wrote is told of: whoever writes there could
// write letters too.
func (rt *Route) leave(r *record.Record, err error) {
	if err != nil {
		rt.report(record.Report{
			Kind: record.ReportReplayWithoutEnvelope, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
			Err:  fmt.Errorf("record of a replay topic was not replayed: %w", err),
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

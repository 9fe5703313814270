package consumer

import (
	"context"
	"math"
	"slices"

	"github.com/google/uuid"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/kafka"
)

// begin says where partitions begin, for kafka.SourceConfig.Begin: where every route of the topic has done everything
// before. A crash then brings back nothing that was committed in the database, however long before the group's offsets were.
//
// A route that knows nothing of a partition, as one with an inbox never does, leaves it at its committed offset. Replay
// topics are not answered for: what is replayed is known by its place, in the inbox.
func (e *engine) begin(ctx context.Context, at []kafka.Start) ([]kafka.Start, error) {
	asked := map[string][]kafka.Start{}
	for _, s := range at {
		asked[s.Topic] = append(asked[s.Topic], s)
	}
	var kept []kafka.Start
	for topic, starts := range asked {
		inboxes := e.inboxes[topic]
		if !slices.ContainsFunc(inboxes, func(rt *dedup.Route) bool { return rt.Store() == dedup.ByOffset }) {
			continue
		}
		for i := range starts {
			starts[i].Offset, starts[i].Epoch, starts[i].End = math.MaxInt64, -1, 0
		}
		for _, rt := range inboxes {
			if err := holdBack(ctx, rt, starts); err != nil {
				return nil, err
			}
		}
		kept = append(kept, starts...)
	}
	return kept, nil
}

// holdBack holds the starts of a topic's partitions back to where a route is.
func holdBack(ctx context.Context, rt *dedup.Route, starts []kafka.Start) error {
	lows := map[int32]dedup.Low{}
	if id := starts[0].TopicID; id != uuid.Nil {
		partitions := make([]int32, len(starts))
		for i, s := range starts {
			partitions[i] = s.Partition
		}
		var err error
		if lows, err = rt.Lows(ctx, id, partitions); err != nil {
			return err
		}
	}
	for i := range starts {
		s := &starts[i]
		low, known := lows[s.Partition]
		switch {
		case !known:
			s.Offset, s.Epoch = -1, -1
		case low.Offset < s.Offset:
			s.Offset, s.Epoch = low.Offset, low.LeaderEpoch
		}
		s.End = max(s.End, low.End)
	}
	return nil
}

package consumer

import (
	"context"
	"log/slog"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/record"
)

// claims tell a route's inbox where each claim begins, and that it ended in order: that is how a record is found that
// takes its process down. Without an answer of the database a claim starts and ends all the same, uncounted.
type claims struct {
	route string
	inbox *dedup.Route
	log   *slog.Logger
}

func (c claims) started(ctx context.Context, first *record.Record) func(context.Context) {
	c.tell(ctx, first, c.inbox.Claimed(ctx, first.TopicID, first.Partition, first.Offset))
	return func(ctx context.Context) {
		c.tell(ctx, first, c.inbox.Released(ctx, first.TopicID, first.Partition))
	}
}

func (c claims) tell(ctx context.Context, first *record.Record, err error) {
	if err != nil {
		c.log.DebugContext(ctx, "claim not counted", "route", c.route, "topic", first.Topic,
			"partition", first.Partition, "offset", first.Offset, "error", err)
	}
}

package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// horizonOfRoute is that of its topics, or since when something of it is parked, whichever is earlier.
func (c *Consumer) horizonOfRoute(s spec) func(context.Context) (time.Time, error) {
	topics := c.horizon(s.topic, s.replay)
	if s.byOffset() {
		return topics // it cannot park
	}
	return func(ctx context.Context) (time.Time, error) {
		first, err := topics(ctx)
		if err != nil {
			return time.Time{}, err
		}
		since, err := c.parkedSince(ctx, s.name)
		if err != nil || since.IsZero() {
			return first, err
		}
		return earlier(first, since), nil
	}
}

// horizon tells the inbox's sweep what may still be redelivered: the timestamp of the oldest record of the topics that
// the consumer group has not committed, over all partitions and members; the zero time when there is none. It is asked
// once an hour or so, with a client of its own, so that it costs nothing in between.
func (c *Consumer) horizon(topics ...string) func(context.Context) (time.Time, error) {
	return func(ctx context.Context) (first time.Time, err error) {
		ctx, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		for _, topic := range topics {
			at, err := c.horizonOf(ctx, topic)
			if err != nil {
				return time.Time{}, err
			}
			if !at.IsZero() {
				first = earlier(first, at)
			}
		}
		return first, nil
	}
}

func (c *Consumer) horizonOf(ctx context.Context, topic string) (time.Time, error) {
	cl, err := kgo.NewClient(append(c.cfg.client().Options(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())...)
	if err != nil {
		return time.Time{}, err
	}
	defer cl.Close()
	open, err := uncommitted(ctx, kadm.NewClient(cl), c.cfg.Group, topic)
	if err != nil || len(open) == 0 {
		return time.Time{}, err
	}
	return oldest(ctx, cl, topic, open)
}

// span is what the group has not committed of a partition: from an offset up to before another.
type span struct{ from, end int64 }

// uncommitted gives the span of each partition that is not drained. It begins at the committed offset, or at the start.
func uncommitted(ctx context.Context, adm *kadm.Client, group, topic string) (map[int32]span, error) {
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(starts.Error(), ends.Error()); err != nil {
		return nil, err
	}
	committed, err := committedBy(ctx, adm, group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // which has committed nothing
		return nil, fmt.Errorf("committed offsets of group %s: %w", group, err)
	}
	open := map[int32]span{}
	ends.Each(func(end kadm.ListedOffset) {
		start, _ := starts.Lookup(topic, end.Partition)
		o, _ := committed.Lookup(topic, end.Partition)
		if from := max(start.Offset, o.At, 0); from < end.Offset {
			open[end.Partition] = span{from, end.Offset}
		}
	})
	return open, nil
}

// coordinatorPause is between two questions for a group's coordinator.
const coordinatorPause = 500 * time.Millisecond

// committedBy waits for the group's coordinator: the first group of a new cluster has none until a topic of the brokers'
// own is made.
func committedBy(ctx context.Context, adm *kadm.Client, group string) (kadm.OffsetResponses, error) {
	for {
		committed, err := adm.FetchOffsets(ctx, group)
		if !errors.Is(err, kerr.CoordinatorNotAvailable) {
			return committed, err
		}
		select {
		case <-time.After(coordinatorPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// oldest reads the first record of each span. A span may hold none, only the markers of transactions, which are read
// too for that reason: the last of them ends it. ctx bounds the wait for one whose tail is gone altogether.
func oldest(ctx context.Context, cl *kgo.Client, topic string, open map[int32]span) (time.Time, error) {
	from := make(map[int32]kgo.Offset, len(open))
	for partition, s := range open {
		from[partition] = kgo.NewOffset().At(s.from)
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: from})
	var first time.Time
	for len(open) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return time.Time{}, fmt.Errorf("read where the group stands in %s: %w", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			s, waiting := open[r.Partition]
			switch {
			case !waiting:
				return
			case !r.Attrs.IsControl():
				first = earlier(first, r.Timestamp)
				delete(open, r.Partition)
			case r.Offset+1 >= s.end:
				delete(open, r.Partition)
			}
		})
	}
	return first, nil
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

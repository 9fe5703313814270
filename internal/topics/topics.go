// Package topics reads whole topics, and how far a consumer group is behind one: for those who count.
package topics

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/kafka"
)

// Read reads a topic from its start to where it ends at this moment, outside of any consumer group.
func Read(ctx context.Context, cfg kafka.ClientConfig, topic string, each func(*kgo.Record)) error {
	cl, err := kgo.NewClient(append(cfg.Options(), kgo.FetchIsolationLevel(kgo.ReadCommitted()))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	left, err := extent(ctx, cl, topic)
	if err != nil {
		return err
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts(left)})
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return fmt.Errorf("read %s: %w", topic, err)
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) { take(p, left, each) })
	}
	return nil
}

// take hands the records before the partition's end on, and strikes the partition off when it is there.
func take(p kgo.FetchTopicPartition, left map[int32]int64, each func(*kgo.Record)) {
	for _, r := range p.Records {
		if r.Offset < left[p.Partition] {
			each(r)
		}
		if r.Offset+1 >= left[p.Partition] {
			delete(left, p.Partition)
			return
		}
	}
}

func starts(left map[int32]int64) map[int32]kgo.Offset {
	at := make(map[int32]kgo.Offset, len(left))
	for partition := range left {
		at[partition] = kgo.NewOffset().AtStart()
	}
	return at
}

// extent gives the end of every partition that has something.
func extent(ctx context.Context, cl *kgo.Client, topic string) (map[int32]int64, error) {
	adm := kadm.NewClient(cl)
	begin, err := adm.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	end, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	left := map[int32]int64{}
	end.Each(func(o kadm.ListedOffset) {
		if from, ok := begin.Lookup(topic, o.Partition); ok && o.Offset > from.Offset {
			left[o.Partition] = o.Offset
		}
	})
	return left, end.Error()
}

// Backlog is how far the group's committed offsets are behind the topic's ends; a partition without a commit is behind
// by all that it has.
func Backlog(ctx context.Context, adm *kadm.Client, group, topic string) (int64, error) {
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	committed, err := adm.FetchOffsets(ctx, group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // nobody has joined it yet
		return 0, err
	}
	var behind int64
	ends.Each(func(o kadm.ListedOffset) {
		at := int64(0)
		if c, ok := committed.Lookup(topic, o.Partition); ok && c.At > 0 {
			at = c.At
		}
		behind += max(o.Offset-at, 0)
	})
	return behind, ends.Error()
}

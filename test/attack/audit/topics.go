package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// topic is what stands in one.
type topic struct {
	id        uuid.UUID
	records   []*kgo.Record // by partition and offset, without aborted ones and markers
	committed map[int32]int64
	ends      map[int32]int64 // the ends of what consumers may read
	open      []int32         // partitions with an unfinished transaction
}

// next is where each partition's last record ends.
func (t *topic) next() map[int32]int64 {
	next := map[int32]int64{}
	for _, r := range t.records {
		next[r.Partition] = r.Offset + 1
	}
	return next
}

// reader reads topics.
type reader struct {
	brokers []string
	admin   *kadm.Client
}

func newReader(brokers []string) (*reader, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		return nil, err
	}
	return &reader{brokers, kadm.NewClient(client)}, nil
}

func (rd *reader) close() { rd.admin.Close() }

// read gives what stands in a topic now; an empty one for a topic that does not exist.
func (rd *reader) read(ctx context.Context, name string) (*topic, error) {
	t := &topic{ends: map[int32]int64{}, committed: map[int32]int64{}}
	details, err := rd.admin.ListTopics(ctx, name)
	if err != nil {
		return nil, err
	}
	if errors.Is(details[name].Err, kerr.UnknownTopicOrPartition) {
		return t, nil
	}
	t.id = uuid.UUID(details[name].ID)
	starts, err := rd.admin.ListStartOffsets(ctx, name)
	stable, err2 := rd.admin.ListCommittedOffsets(ctx, name)
	ends, err3 := rd.admin.ListEndOffsets(ctx, name)
	if err := errors.Join(err, starts.Error(), err2, stable.Error(), err3, ends.Error()); err != nil {
		return nil, fmt.Errorf("offsets of %s: %w", name, err)
	}
	from := map[int32]kgo.Offset{}
	ends.Each(func(end kadm.ListedOffset) {
		lso, _ := stable.Lookup(name, end.Partition)
		start, _ := starts.Lookup(name, end.Partition)
		t.ends[end.Partition] = lso.Offset
		if lso.Offset < end.Offset {
			t.open = append(t.open, end.Partition)
		}
		if start.Offset < lso.Offset {
			from[end.Partition] = kgo.NewOffset().At(start.Offset)
		}
	})
	t.records, err = rd.records(ctx, name, from, t.ends)
	return t, err
}

// records reads up to these ends. A transaction's marker may be the last that stands there.
func (rd *reader) records(ctx context.Context, name string, from map[int32]kgo.Offset, ends map[int32]int64) ([]*kgo.Record, error) {
	if len(from) == 0 {
		return nil, nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(rd.brokers...), kgo.KeepControlRecords(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{name: from}))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var found []*kgo.Record
	left := len(from)
	done := map[int32]bool{}
	for left > 0 {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset >= ends[r.Partition]-1 && !done[r.Partition] {
				done[r.Partition] = true
				left--
			}
			if r.Offset < ends[r.Partition] && !r.Attrs.IsControl() {
				found = append(found, r)
			}
		})
	}
	slices.SortFunc(found, func(a, b *kgo.Record) int {
		if a.Partition != b.Partition {
			return int(a.Partition - b.Partition)
		}
		return int(a.Offset - b.Offset)
	})
	return found, nil
}

// commits are the group's offsets.
func (rd *reader) commits(ctx context.Context, group string, topics map[string]*topic) error {
	offsets, err := rd.admin.FetchOffsets(ctx, group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return err
	}
	offsets.Each(func(o kadm.OffsetResponse) {
		if t := topics[o.Topic]; t != nil {
			t.committed[o.Partition] = o.At
		}
	})
	return nil
}

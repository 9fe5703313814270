package dlq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

const (
	// fetchBytes bounds what is in memory at a time, compressed; a larger batch comes alone.
	fetchBytes = 4 << 20
	// fetchWait is how long a broker waits for something to be there. All that is read is there already.
	fetchWait = 500 * time.Millisecond
	// stalled is how long a reading may stand still before it gives up: a leader that moves needs seconds.
	stalled = 30 * time.Second
	// fetchAgain is the wait before what a broker could not answer is asked again.
	fetchAgain = 100 * time.Millisecond
)

// topicLog is a topic from a beginning to an end that were fixed when it was opened.
//
// It fetches by itself and not through the client's consumer: that tells which records there are, and not how far it has
// come where there are none. After a compaction, or where the last transaction was aborted, the record before the end may
// not exist, and waiting for it would never end.
type topicLog struct {
	client  *kgo.Client
	adm     *kadm.Client
	codec   kgo.Decompressor
	topic   string
	id      uuid.UUID
	leaders map[int32]int32
	starts  map[int32]int64
	ends    map[int32]int64
}

// openLog fixes the bounds. A record that was written before since may be left out, one that was written after it is not.
func openLog(ctx context.Context, cfg kafka.ClientConfig, topic string, since time.Time) (*topicLog, error) {
	client, err := kgo.NewClient(append(cfg.Options(), kgo.MetadataMinAge(fetchAgain))...)
	if err != nil {
		return nil, err
	}
	l := &topicLog{client: client, adm: kadm.NewClient(client), codec: kgo.DefaultDecompressor(), topic: topic}
	if err := l.open(ctx, since); err != nil {
		client.Close()
		return nil, cause(ctx, err)
	}
	return l, nil
}

func (l *topicLog) open(ctx context.Context, since time.Time) error {
	if err := l.findLeaders(ctx); err != nil {
		return err
	}
	var err error
	// Committed: before a transaction that is still open. What it holds is not readable yet.
	if l.ends, err = l.offsets(l.adm.ListCommittedOffsets(ctx, l.topic)); err != nil {
		return err
	}
	if l.starts, err = l.offsets(l.adm.ListStartOffsets(ctx, l.topic)); err != nil || since.IsZero() {
		return err
	}
	later, err := l.offsets(l.adm.ListOffsetsAfterMilli(ctx, since.UnixMilli(), l.topic))
	for p, offset := range later {
		l.starts[p] = max(l.starts[p], offset)
	}
	return err
}

// endAt brings the end forward to that of an earlier reading. A partition that was not there then is not read.
func (l *topicLog) endAt(ends map[int32]int64) {
	if ends == nil {
		return
	}
	for p, end := range l.ends {
		l.ends[p] = min(end, ends[p])
	}
}

func (l *topicLog) close() { l.client.Close() }

// findLeaders asks who leads the partitions. The id stays what it was: a topic that was deleted and created again is
// another, and its offsets mean nothing here.
func (l *topicLog) findLeaders(ctx context.Context) error {
	topics, err := l.adm.ListTopicsWithInternal(ctx, l.topic)
	if err != nil {
		return err
	}
	detail, ok := topics[l.topic]
	if !ok || errors.Is(detail.Err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("%w %q", kafka.ErrUnknownTopic, l.topic)
	}
	if detail.Err != nil {
		return detail.Err
	}
	if id := uuid.UUID(detail.ID); l.leaders != nil && id != l.id {
		return errors.New("the topic was deleted and created again while it was read")
	}
	l.id, l.leaders = uuid.UUID(detail.ID), make(map[int32]int32, len(detail.Partitions))
	for p, partition := range detail.Partitions {
		l.leaders[p] = partition.Leader
	}
	return nil
}

func (l *topicLog) offsets(listed kadm.ListedOffsets, err error) (map[int32]int64, error) {
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, err
	}
	byPartition := make(map[int32]int64, len(listed[l.topic]))
	for p, o := range listed[l.topic] {
		byPartition[p] = o.Offset
	}
	return byPartition, nil
}

// scan gives all records, by partition and offset. An error of each ends it and comes back as it is.
func (l *topicLog) scan(ctx context.Context, each func(*record.Record) error) error {
	for _, p := range slices.Sorted(maps.Keys(l.ends)) {
		if err := l.scanPartition(ctx, p, each); err != nil {
			return err
		}
	}
	return nil
}

func (l *topicLog) scanPartition(ctx context.Context, p int32, each func(*record.Record) error) error {
	moved := time.Now()
	for at := l.starts[p]; at < l.ends[p]; {
		records, next, err := l.fetch(ctx, p, at)
		for _, r := range records {
			if r.Offset >= l.ends[p] {
				return nil
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := each(l.record(r)); err != nil {
				return err
			}
		}
		if next > at {
			at, moved = next, time.Now()
		}
		if err != nil || len(records) == 0 {
			if err := l.stand(ctx, p, &at, time.Since(moved), err); err != nil {
				return cause(ctx, fmt.Errorf("read %s/%d/%d: %w", l.topic, p, at, err))
			}
		}
	}
	return nil
}

// fetch asks for the records from an offset on and gives them with the offset to go on at.
func (l *topicLog) fetch(ctx context.Context, p int32, at int64) ([]*kgo.Record, int64, error) {
	response, err := l.client.Broker(int(l.leaders[p])).RetriableRequest(ctx, l.request(p, at))
	if err != nil {
		return nil, at, err
	}
	fetched, ok := response.(*kmsg.FetchResponse)
	if !ok || len(fetched.Topics) != 1 || len(fetched.Topics[0].Partitions) != 1 {
		return nil, at, errAnswer
	}
	if err := kerr.ErrorForCode(fetched.ErrorCode); err != nil {
		return nil, at, err
	}
	opts := kgo.ProcessFetchPartitionOpts{Topic: l.topic, Partition: p, Offset: at, IsolationLevel: kgo.ReadCommitted()}
	part, next := kgo.ProcessFetchPartition(opts, &fetched.Topics[0].Partitions[0], l.codec, nil)
	return part.Records, next, part.Err
}

// errAnswer is an answer without the partition that was asked for.
var errAnswer = errors.New("the broker's answer lacks the partition")

func (l *topicLog) request(p int32, at int64) *kmsg.FetchRequest {
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes = p, at, fetchBytes
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = l.topic, l.id
	topic.Partitions = append(topic.Partitions, part)
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.SessionEpoch = -1, -1 // a consumer, without a fetch session
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(fetchWait.Milliseconds()), 1, fetchBytes
	req.IsolationLevel = 1 // read committed
	req.Topics = append(req.Topics, topic)
	return req
}

// stand is asked when a fetch has brought nothing. It says whether to go on, after a while, and where.
func (l *topicLog) stand(ctx context.Context, p int32, at *int64, stood time.Duration, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, kerr.OffsetOutOfRange):
		return l.skipDeleted(ctx, p, at, stood, err)
	case permanent(err):
		return err
	case stood > stalled && err == nil:
		return fmt.Errorf("nothing for %s, although the topic ended at %d", stalled, l.ends[p])
	case stood > stalled:
		return err
	case err == nil:
		return nil // a gap: the broker had us wait, or we have moved
	case !backoff.Wait(ctx, fetchAgain):
		return ctx.Err()
	}
	if err := l.findLeaders(ctx); err != nil && !kerr.IsRetriable(err) {
		return err
	}
	return nil
}

// skipDeleted goes on where the log begins now, after retention has taken what was next.
func (l *topicLog) skipDeleted(ctx context.Context, p int32, at *int64, stood time.Duration, err error) error {
	starts, listed := l.offsets(l.adm.ListStartOffsets(ctx, l.topic))
	switch {
	case listed != nil && !kerr.IsRetriable(listed):
		return listed
	case starts[p] > *at:
		*at = starts[p]
		return nil
	case stood > stalled || !backoff.Wait(ctx, fetchAgain):
		return err
	}
	return nil
}

// permanent says whether asking again would be answered in the same way. A topic that a broker does not know may be news
// that it has not heard yet, and an error of its own may pass.
func permanent(err error) bool {
	if err == nil || errors.Is(err, errAnswer) || kerr.IsRetriable(err) ||
		errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.UnknownServerError) {
		return false
	}
	var broker *kerr.Error
	return errors.As(err, &broker) || errors.Is(err, kgo.ErrClientClosed)
}

// cause prefers why ctx ended to what came of it.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (l *topicLog) record(r *kgo.Record) *record.Record {
	out := &record.Record{
		Topic: r.Topic, TopicID: l.id, Partition: r.Partition, Offset: r.Offset,
		Timestamp: r.Timestamp.UTC(), Key: r.Key, Value: r.Value,
	}
	if len(r.Headers) > 0 {
		out.Headers = make([]record.Header, len(r.Headers))
	}
	for i, h := range r.Headers {
		out.Headers[i] = record.Header{Key: h.Key, Value: h.Value}
	}
	return out
}

package dlq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// ReadAt gives the one record at a place of any topic, as its consumers read it: committed, and with the topic's id. A
// place without a record is a *NoRecordError.
// kafka.ErrUnknownTopic is a topic that does not exist.
func ReadAt(ctx context.Context, client kafka.ClientConfig, at Coordinates) (*record.Record, error) {
	if err := client.Validate(); err != nil {
		return nil, err
	}
	l, err := openLog(ctx, client, at.Topic, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", at.Topic, err)
	}
	defer l.close()
	if err := l.only(at); err != nil {
		return nil, &NoRecordError{At: at, Err: err}
	}
	var found *record.Record
	if err := l.scan(ctx, func(r *record.Record) error { found = r; return nil }); err != nil {
		return nil, err
	}
	if found == nil {
		return nil, &NoRecordError{At: at, Err: errNoRecord}
	}
	return found, nil
}

var errNoRecord = errors.New("there is no record: compaction took it, its transaction was aborted, or it marks the end of one")

// only makes the bounds those of one place.
func (l *topicLog) only(at Coordinates) error {
	start, end := l.starts[at.Partition], l.ends[at.Partition]
	switch _, ok := l.ends[at.Partition]; {
	case !ok:
		return fmt.Errorf("the topic has no partition %d, it has %d", at.Partition, len(l.ends))
	case at.Offset < start:
		return fmt.Errorf("the record is deleted: the partition begins at offset %d", start)
	case at.Offset >= end:
		return fmt.Errorf("the record is not there yet: what can be read of the partition ends before offset %d", end)
	}
	l.starts, l.ends = map[int32]int64{at.Partition: at.Offset}, map[int32]int64{at.Partition: at.Offset + 1}
	return nil
}

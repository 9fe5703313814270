package dlq

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// Log is a topic between bounds that were fixed when it was opened, for whoever reads all of it. It belongs to one
// goroutine, and must be closed.
type Log struct{ log *topicLog }

// OpenLog fixes the bounds: what is committed at this moment, from since on where that is not zero. kafka.ErrUnknownTopic
// is a topic that does not exist.
func OpenLog(ctx context.Context, client kafka.ClientConfig, topic string, since time.Time) (*Log, error) {
	if err := client.Validate(); err != nil {
		return nil, err
	}
	l, err := openLog(ctx, client, topic, since)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", topic, err)
	}
	return &Log{l}, nil
}

// ID is the topic's.
func (l *Log) ID() uuid.UUID { return l.log.id }

// Starts and Ends are the bounds of each partition; the end is behind the last record.
func (l *Log) Starts() map[int32]int64 { return maps.Clone(l.log.starts) }

// Ends is beside Starts.
func (l *Log) Ends() map[int32]int64 { return maps.Clone(l.log.ends) }

// From makes the bounds begin where an earlier reading ended.
func (l *Log) From(ends map[int32]int64) {
	for p, end := range ends {
		l.log.starts[p] = max(l.log.starts[p], end)
	}
}

// Scan gives all records between the bounds, by partition and offset, as consumers read them. An error of each ends it and
// comes back as it is.
func (l *Log) Scan(ctx context.Context, each func(*record.Record) error) error {
	return l.log.scan(ctx, each)
}

// Close ends its connections.
func (l *Log) Close() { l.log.close() }

package dlq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// ReadConfig says which letters to read.
type ReadConfig struct {
	// Client says how to reach the cluster. Required.
	Client kafka.ClientConfig
	// Topic is the dead letter topic. Required.
	Topic string
	// Filter is which of its letters. Defaults to all.
	Filter Filter
	// Ends is where to stop in each partition: an earlier Snapshot's, so that what was looked at is what is replayed, and
	// not what has come since.
	//
	// Defaults to where the topic ends when Read begins.
	Ends map[int32]int64
}

func (c ReadConfig) validate() error {
	if err := c.Client.Validate(); err != nil {
		return err
	}
	if c.Topic == "" {
		return errors.New("no topic: ReadConfig.Topic is empty")
	}
	return c.Filter.Validate()
}

// Snapshot is what a reading saw of its topic.
type Snapshot struct {
	// Partitions is how many the topic has, Ends the offset after the last record that was to be read of each.
	Partitions int
	Ends       map[int32]int64
	// Records is how many records were read.
	Records int64
	// Repeated is how many of them were older letters of a record that has a later one in the topic.
	Repeated int64
	// Unknown is how many of the others are no letters of a known format.
	Unknown int64
	// Matched is how many were given.
	Matched int64
}

// Read gives the letters of a topic that match, from its beginning to where it ended when Read began, by partition and
// offset. What comes later is not read, so Read ends although letters keep coming. Aborted transactions are left out.
//
// Each record is given once, by its latest letter: a letter may stand twice where its confirmation was lost, and a record
// that was replayed and died again has one of each time. To know the latest, Read goes over the topic twice and keeps
// some 100 bytes for each letter: 100 MB for a million. The letters themselves are never all in memory. A letter that the
// Filter names by its own place is given although it has a later one, and says where that stands.
//
// An error of each ends the reading and is returned as it is; so is the cause of ctx. The Snapshot counts what was read
// until then. kafka.ErrUnknownTopic is a topic that does not exist.
func Read(ctx context.Context, cfg ReadConfig, each func(*Entry) error) (Snapshot, error) {
	if err := cfg.validate(); err != nil {
		return Snapshot{}, err
	}
	l, err := openLog(ctx, cfg.Client, cfg.Topic, cfg.since())
	if err != nil {
		return Snapshot{}, fmt.Errorf("read %q: %w", cfg.Topic, err)
	}
	defer l.close()
	l.endAt(cfg.Ends)
	newest := latest{}
	if err := l.scan(ctx, func(r *record.Record) error { newest.see(NewEntry(r)); return nil }); err != nil {
		return Snapshot{Partitions: len(l.ends), Ends: l.ends}, err
	}
	return give(ctx, l, cfg.Filter, newest, each)
}

// give is the second pass.
func give(ctx context.Context, l *topicLog, f Filter, newest latest, each func(*Entry) error) (Snapshot, error) {
	seen := Snapshot{Partitions: len(l.ends), Ends: l.ends}
	err := l.scan(ctx, func(r *record.Record) error {
		seen.Records++
		e := NewEntry(r)
		if e.Later = newest.than(e); e.Later != nil {
			seen.Repeated++
			if !f.names(e) {
				return nil
			}
		}
		if e.Format == FormatUnknown {
			seen.Unknown++
		}
		if !f.Match(e) {
			return nil
		}
		seen.Matched++
		return each(e)
	})
	return seen, err
}

// clockSkew is by how much the clocks of brokers and consumers may differ.
const clockSkew = time.Hour

// since is when a letter that matches was written at the earliest: its record failed before that, by another clock.
func (c ReadConfig) since() time.Time {
	if c.Filter.Since.IsZero() {
		return time.Time{}
	}
	return c.Filter.Since.Add(-clockSkew)
}

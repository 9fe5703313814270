// Package cut finds logs that have lost what was read of them: after an unclean election, a disk that was lost, or a cluster
// that was restored, offsets that were read once come again for other records.
package cut

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Known is how far a partition is known to have been read.
type Known struct {
	Topic     string
	Partition int32
	// Offset is where everything before was read, and Epoch the leader's of the record before, -1 if unknown.
	Offset int64
	Epoch  int32
	// End is behind the last record that was read, Offset or more.
	End int64
}

func (k Known) end() int64 { return max(k.End, k.Offset) }

// Error is a log that does not hold what was read of it.
type Error struct {
	Known

	// At is where the log that was read ends now.
	At int64
	// Regrown says that other records stand from there on.
	Regrown bool
}

func (e *Error) Error() string {
	if e.Regrown {
		return fmt.Sprintf("the record before offset %d of leader epoch %d was read, and that epoch ends at offset %d: from there on the log has other records",
			e.Offset, e.Epoch, e.At)
	}
	return fmt.Sprintf("records before offset %d were read, and the log ends at %d", e.end(), e.At)
}

// Find gives the partitions whose logs were cut below what is known of them. The error says that they could not all be
// looked at; it is nil if they could.
//
// A log that was cut and has grown again is found by the epochs alone, which only grow: the epoch in which the record before
// Offset was written ends below it then. A broker that knows nothing of that epoch says nothing.
func Find(ctx context.Context, adm *kadm.Client, known []Known) ([]*Error, error) {
	var topics kadm.TopicsSet
	var epochs kadm.OffsetForLeaderEpochRequest
	for _, k := range known {
		if k.end() <= 0 {
			continue
		}
		topics.Add(k.Topic, k.Partition)
		if k.Epoch >= 0 && k.Offset > 0 {
			epochs.Add(k.Topic, k.Partition, k.Epoch)
		}
	}
	if len(topics) == 0 {
		return nil, nil
	}
	ends, err := adm.ListEndOffsets(ctx, topics.Topics()...)
	if err != nil {
		return nil, fmt.Errorf("ends of the logs: %w", err)
	}
	var ended kadm.OffsetsForLeaderEpochs
	if len(epochs) > 0 {
		if ended, err = adm.OffsetForLeaderEpoch(ctx, epochs); err != nil {
			return nil, fmt.Errorf("ends of leader epochs: %w", err)
		}
	}
	return compare(known, ends, ended)
}

func compare(known []Known, ends kadm.ListedOffsets, ended kadm.OffsetsForLeaderEpochs) ([]*Error, error) {
	var found []*Error
	for _, k := range known {
		if k.end() <= 0 {
			continue
		}
		end, ok := ends.Lookup(k.Topic, k.Partition)
		switch {
		case !ok:
			return nil, fmt.Errorf("end of %s/%d: no answer", k.Topic, k.Partition)
		case end.Err != nil:
			return nil, fmt.Errorf("end of %s/%d: %w", k.Topic, k.Partition, end.Err)
		case end.Offset < k.end():
			found = append(found, &Error{Known: k, At: end.Offset})
			continue
		case k.Epoch < 0 || k.Offset <= 0:
			continue
		}
		switch epoch, ok := ended[k.Topic][k.Partition]; {
		case !ok:
			return nil, fmt.Errorf("end of leader epoch %d of %s/%d: no answer", k.Epoch, k.Topic, k.Partition)
		case epoch.Err != nil:
			return nil, fmt.Errorf("end of leader epoch %d of %s/%d: %w", k.Epoch, k.Topic, k.Partition, epoch.Err)
		case epoch.EndOffset >= 0 && epoch.EndOffset < k.Offset:
			found = append(found, &Error{Known: k, At: epoch.EndOffset, Regrown: true})
		}
	}
	return found, nil
}

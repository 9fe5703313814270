package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Committed gives the offset from which a consumer group goes on in a partition: all before it is settled. It is false if
// the group has committed nothing there. It needs the permission Describe on the group.
func (a *Admin) Committed(ctx context.Context, group, topic string, partition int32) (offset int64, ok bool, err error) {
	found, err := a.adm.FetchOffsetsForTopics(ctx, group, topic)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return 0, false, nil
	}
	if err == nil {
		err = found.Error()
	}
	if err != nil {
		return 0, false, fmt.Errorf("committed offsets of group %s: %w", group, err)
	}
	o, ok := found.Lookup(topic, partition)
	return o.At, ok && o.At >= 0, nil
}

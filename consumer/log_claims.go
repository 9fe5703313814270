package consumer

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headrace/headrace/record"
)

// claimQuiet is how long the partitions of one rebalance may take to come in one by one.
const claimQuiet = 100 * time.Millisecond

// claimLog makes one line of the partitions that come or go together. It is safe for concurrent use.
type claimLog struct {
	log *slog.Logger

	mu         sync.Mutex
	event      string
	partitions map[string][]int32 // by topic; nil when there is nothing to tell
	timer      *time.Timer
}

func (l *claimLog) changed(i record.ClaimInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i.Event != l.event {
		l.tell()
	}
	if l.partitions == nil {
		l.event, l.partitions = i.Event, map[string][]int32{}
		l.timer = time.AfterFunc(claimQuiet, l.flush)
	}
	l.partitions[i.Topic] = append(l.partitions[i.Topic], i.Partition)
}

// flush tells what is not told yet.
func (l *claimLog) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tell()
}

// tell is with mu held. A timer of an earlier line that comes too late tells this one early, which does no harm.
func (l *claimLog) tell() {
	if l.partitions == nil {
		return
	}
	l.timer.Stop()
	topics := slices.Sorted(maps.Keys(l.partitions))
	for i, topic := range topics {
		slices.Sort(l.partitions[topic])
		topics[i] = fmt.Sprint(topic, " ", l.partitions[topic])
	}
	l.log.Info("partitions "+l.event, "partitions", strings.Join(topics, ", "))
	l.partitions = nil
}

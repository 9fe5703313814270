package consumer

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/headrace/headrace/record"
)

const (
	// letterInterval is between two lines about dead letters of one kind: a flood of them is one line a minute.
	letterInterval = time.Minute
	// loggedMessage is how much of an error's text stands in such a line; the letter has all of it.
	loggedMessage = 300
	// maxLetterKinds bounds the lines of a minute. What is beyond is told of by route and reason alone.
	maxLetterKinds = 32
)

// letterKind is what dead letters of one cause have in common. fingerprint is "" for those beyond maxLetterKinds.
type letterKind struct{ route, reason, fingerprint string }

// letterLog logs the first dead letter of a kind at once, and a minute later how many more there were, with the newest.
// It is safe for concurrent use.
type letterLog struct {
	log *slog.Logger

	mu    sync.Mutex
	kinds map[letterKind]*moreLetters // those that were told of within the last minute
}

// moreLetters are those since the last line.
type moreLetters struct {
	count  int
	newest record.DeadLetterInfo
	since  time.Time
	timer  *time.Timer
}

func newLetterLog(log *slog.Logger) letterLog {
	return letterLog{log: log, kinds: map[letterKind]*moreLetters{}}
}

func (l *letterLog) died(i record.DeadLetterInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind := letterKind{i.Route, i.Reason, i.Fingerprint}
	if l.kinds[kind] == nil && len(l.kinds) >= maxLetterKinds {
		kind.fingerprint = ""
	}
	if more := l.kinds[kind]; more != nil {
		more.count++
		more.newest = i
		return
	}
	l.log.Warn("dead letter", letterAttrs(i)...)
	l.kinds[kind] = &moreLetters{since: time.Now(), timer: time.AfterFunc(letterInterval, func() { l.next(kind) })}
}

// next begins another minute of a kind, unless the last one had none.
func (l *letterLog) next(kind letterKind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	more := l.kinds[kind]
	switch {
	case more == nil: // flushed just now
	case more.count == 0:
		delete(l.kinds, kind)
	default:
		l.tell(more)
		more.count, more.since = 0, time.Now()
		more.timer.Reset(letterInterval)
	}
}

// flush tells what is not told yet, and ends every timer.
func (l *letterLog) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for kind, more := range l.kinds {
		more.timer.Stop()
		if more.count > 0 {
			l.tell(more)
		}
		delete(l.kinds, kind)
	}
}

func (l *letterLog) tell(more *moreLetters) {
	within := time.Since(more.since).Round(time.Millisecond)
	l.log.Warn("more dead letters", append([]any{"count", more.count, "within", within}, letterAttrs(more.newest)...)...)
}

func letterAttrs(i record.DeadLetterInfo) []any {
	return []any{
		"route", i.Route, "reason", i.Reason, "topic", i.Topic, "partition", i.Partition, "offset", i.Offset,
		"error", beginning(i.Message, loggedMessage),
	}
}

// beginning is at most n bytes of s, and a mark if there is more.
func beginning(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

package audit

import (
	"context"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/record"
)

// spot is where a record stands in its topic.
type spot struct {
	partition int32
	offset    int64
}

// letter is a dead letter, or a replay of one, as its headers say.
type letter struct {
	topic, group, route string
	topicID             uuid.UUID
	origin              spot
	latest              string
	id                  uuid.UUID
}

// openLetter reads the headers that stand at the end, as many as the last one says; false is no letter of ours.
func openLetter(r *record.Record) (l letter, ok bool) {
	const mark = "headrace-dlq"
	last := len(r.Headers) - 1
	if last < 0 || r.Headers[last].Key != mark {
		return l, false
	}
	n, err := strconv.Atoi(string(r.Headers[last].Value))
	if err != nil || n < 0 || n > last {
		return l, false
	}
	fields := map[string]string{}
	for _, h := range r.Headers[last-n : last] {
		fields[h.Key] = string(h.Value)
	}
	partition, err := strconv.ParseInt(fields["headrace-partition"], 10, 32)
	offset, err2 := strconv.ParseInt(fields["headrace-offset"], 10, 64)
	if err != nil || err2 != nil {
		return l, false
	}
	l = letter{
		topic: fields["headrace-topic"], group: fields["headrace-group"], route: fields["headrace-route"], latest: fields["headrace-latest"],
		origin: spot{int32(partition), offset},
	}
	l.topicID, _ = uuid.Parse(fields["headrace-topic-id"])
	l.id, _ = uuid.Parse(fields["headrace-message-id"])
	return l, true
}

// drawer are a route's letters, by where their records were first read: a few bytes each.
type drawer struct {
	of map[spot]*letters
	// read are the places in the replay topic of which there is a letter.
	read map[uint64]bool
}

type letters struct {
	n, repeated int32
	last        uint64 // hash of where the latest one was read
}

func newDrawer() *drawer { return &drawer{of: map[spot]*letters{}, read: map[uint64]bool{}} }

func (d *drawer) put(l *letter) {
	at := d.of[l.origin]
	if at == nil {
		at = &letters{}
		d.of[l.origin] = at
	}
	latest := hashOf(l.latest)
	if at.n > 0 && at.last == latest {
		at.repeated++
	}
	at.n, at.last = at.n+1, latest
	if !strings.HasPrefix(l.latest, l.topic+"/") {
		d.read[latest] = true
	}
}

func (d *drawer) at(s spot) letters {
	if l := d.of[s]; l != nil {
		return *l
	}
	return letters{}
}

func hashOf(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return h.Sum64()
}

// readLetters puts the letters of the audited topic into the drawers of their routes. gone is before when letters may have
// been deleted by retention: zero if none were.
func (a *auditor) readLetters(ctx context.Context, log *dlq.Log) (gone time.Time, err error) {
	starts := log.Starts()
	first := map[int32]time.Time{}
	err = log.Scan(ctx, func(r *record.Record) error {
		if _, seen := first[r.Partition]; !seen {
			first[r.Partition] = r.Timestamp
		}
		l, ok := openLetter(r)
		if !ok || l.group != a.cfg.Group || l.topic != a.cfg.Topic || l.topicID != a.topicID {
			return nil
		}
		if route := a.routes[l.route]; route != nil {
			route.letters.put(&l)
		}
		return nil
	})
	for p, start := range starts {
		if start == 0 {
			continue
		}
		since, seen := first[p]
		if !seen {
			since = time.Now()
		}
		if since.After(gone) {
			gone = since
		}
	}
	return gone, err
}

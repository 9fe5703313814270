package middleware

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// A record is reported when its calls have failed this often, and for this long, without being charged: either the
// dependency is down, and then its breaker or its own alerts say so, or it is the record.
const (
	doubtRounds = 3
	doubtAge    = 10 * time.Second
)

// doubt is about one record: whether its calls fail because of it or because its dependency is down. It counts the
// failures in a row that were not charged because nobody corroborated them.
type doubt struct {
	rounds  int
	began   uint64 // answers of the dependency, to anybody, until the first of them
	since   time.Time
	told    bool
	counted bool // among those of the route
}

// note is told of each decision about the head of c.
func (d *doubt) note(c *chain, is Decision) {
	switch e := c.called(); {
	case e != nil && e.Charge == downstream.Free:
		d.round(c, e)
	case e != nil && e.Charge == downstream.Outage: // the gate keeps others from coming after it
		d.clear(c.rt.Gates)
	case is.Charged:
		d.clear(c.rt.Gates)
		d.rounds = 0
	}
}

func (d *doubt) round(c *chain, e *CallError) {
	more := int64(0)
	if !d.counted {
		d.counted, more = true, 1
	}
	c.rt.Gates.doubt(more, c.rt.shown(c.head(), e.Err))
	if d.rounds++; d.rounds == 1 {
		d.since, d.began = time.Now(), e.answers
	}
	age := time.Since(d.since)
	if d.told || d.rounds < doubtRounds || age < doubtAge {
		return
	}
	d.told = true
	r := c.head()
	c.rt.report(record.Report{
		Kind: record.ReportNotCorroborated, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Age: age, Err: c.rt.shown(r, e.Err),
		Hint: d.seen(e, age) + ". " + whyFree(e) + ", so it is not charged, and its key waits: if " +
			e.Dependency + " is well, make the call's error Permanent, or say that the record is dead: " + c.rt.buryCommand(r),
	})
}

// seen is what is known of a record in doubt.
func (d *doubt) seen(e *CallError, age time.Duration) string {
	others := "nobody else"
	if e.answers > d.began {
		others = fmt.Sprintf("%d calls of others", e.answers-d.began)
	}
	return fmt.Sprintf("%s has failed %d calls for the record within %s, and answered %s meanwhile",
		e.Dependency, d.rounds, age.Round(time.Second), others)
}

// whyFree is why such a failure costs the record nothing, whatever was seen of others.
func whyFree(e *CallError) string {
	if e.Fault.Class == fault.ClassUnavailable {
		return "The call's own verdict, Unavailable, says that it is not the record's fault"
	}
	return "That does not show that it is the record's fault"
}

// buryCommand is what an operator runs to have r out of the way. The id is always in it: the command does not know the
// route's Identity. Its key will do, which no shell takes for anything else, whatever a producer wrote.
func (rt *Route) buryCommand(r *record.Record) string {
	at := r.Topic + "/" + strconv.Itoa(int(r.Partition)) + "/" + strconv.FormatInt(r.Offset, 10)
	return "headrace bury --group " + shellWord(rt.Group) + " --route " + shellWord(rt.Name) + " --at " + at +
		" --id " + r.Identity.Key.String()
}

// shellWord quotes a name that is more than a plain word.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_./", r)
	}
	if s != "" && strings.TrimLeftFunc(s, plain) == "" && s[0] != '-' {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func (d *doubt) clear(s *Gates) {
	if d.counted {
		d.counted = false
		s.doubt(-1, nil)
	}
}

// doubts are the records of a route that are in doubt at this moment. From some number on the scheduler begins nothing
// more until one of them succeeds, is charged, or finds the gate shut: a breaker opens when half of what it saw in its
// window has failed, and after a busy minute that takes long; without this bound each record of the backlog would fail
// once and wait in memory, to make it happen. As many must have begun to fail since anybody was answered: bad records of a
// healthy service, however many are in doubt, must not keep those from it that it answers.
type doubts struct {
	dep  *downstream.Dependency
	most int64 // 0 for a route that does not call
	held atomic.Bool

	mu   sync.Mutex
	now  int64
	from time.Time // since when they are too many
	why  error     // what the last of them failed with
}

// mostDoubts: as many as can call at once, more would wait for them; and enough for the breaker to see an outage.
func mostDoubts(cfg downstream.Config) int64 {
	return int64(max(cfg.MaxConcurrent, 2*cfg.Breaker.MinRequests))
}

func (d *doubts) shut() bool { return d.held.Load() }

func (d *doubts) since() (time.Time, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.from, d.shut()
}

// because is what the last record in doubt failed with, while they are too many.
func (d *doubts) because() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.shut() {
		return nil
	}
	return d.why
}

// doubt counts records that have come into doubt, because of why, or out of it. It is told with 0 of whatever else may have
// ended the stop: an answer, or that one in doubt has failed once more, for others may have been answered meanwhile.
func (s *Gates) doubt(n int64, why error) {
	d := &s.doubts
	d.mu.Lock()
	d.now += n
	if d.why = or(why, d.why); d.now == 0 {
		d.why = nil
	}
	held := d.now >= d.most && d.dep.Unanswered() >= d.most
	crossed := d.held.Swap(held) != held
	if crossed {
		d.from = time.Now()
	}
	d.mu.Unlock()
	if crossed {
		s.changed()
	}
}

// answered is told of each call that succeeded.
func (s *Gates) answered() {
	if s.doubts.shut() {
		s.doubt(0, nil)
	}
}

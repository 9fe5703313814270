package middleware

import (
	"time"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/record"
)

// A record is reported when its calls have failed this often, and for this long, while nothing else showed that the
// dependency answers anybody: either it is down, and then its breaker or its own alerts say so, or it is the record.
const (
	doubtRounds = 5
	doubtAge    = time.Minute
)

// doubt counts failures of one record's calls in a row that were not charged to it because nobody corroborated them.
type doubt struct {
	rounds int
	since  time.Time
	told   bool
}

// note is told of each decision about the head of c.
func (d *doubt) note(c *chain, is Decision) {
	e := c.called()
	switch {
	case e == nil || e.Charge == downstream.Outage:
	case is.Charged:
		*d = doubt{told: d.told}
	case e.Charge == downstream.Free:
		d.count(c, e)
	}
}

func (d *doubt) count(c *chain, e *CallError) {
	if d.rounds++; d.rounds == 1 {
		d.since = time.Now()
	}
	age := time.Since(d.since)
	if d.told || d.rounds < doubtRounds || age < doubtAge {
		return
	}
	d.told = true
	r := c.head()
	c.rt.report(record.Report{
		Kind: record.ReportNotCorroborated, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Age: age, Err: e.Err,
		Hint: e.Dependency + " has answered nobody since, so the record is not charged and its key waits: if " + e.Dependency +
			" is well, it is the record; make the call's error Permanent, or take the record out",
	})
}

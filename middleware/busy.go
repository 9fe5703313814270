package middleware

import (
	"time"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// busyAge is how long a record must have been busy elsewhere, whenever it was tried, to be reported. It is longer than
// what is busy as a rule: a call in flight, a claim of a process that is gone.
const busyAge = time.Minute

// busy is about one record: whether it goes on being busy elsewhere. That is free and has no gate, so nobody would be told
// of a lock that nobody lets go of, or of a service that answers 409 for ever.
type busy struct {
	since time.Time
	told  bool
}

// note is told of each failure of the head of c.
func (b *busy) note(c *chain) {
	switch {
	case c.fault.Class != fault.ClassBusy:
		b.since = time.Time{}
		return
	case b.since.IsZero():
		b.since = time.Now()
	}
	age := time.Since(b.since)
	if b.told || age < busyAge {
		return
	}
	b.told = true
	r := c.head()
	c.rt.report(record.Report{
		Kind: record.ReportBusy, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Age: age, Err: c.rt.shown(r, r.Err),
		Hint: "whatever it needs is in use by another, each time that it is tried; that costs it nothing and never ends by itself, " +
			"and its key waits: find who holds it, make the error Permanent, or say that the record is dead: " + c.rt.buryCommand(r),
	})
}

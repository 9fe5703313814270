package claim

import (
	"fmt"
	"time"

	"github.com/headrace/headrace/record"
)

// Load is what a claim has in memory.
type Load struct {
	// Records are those that some line has not settled.
	Records int
	// Bytes are of the window: from the watermark on, settled ones that wait for an earlier one included.
	Bytes int64
	// InFlight counts the records that run or wait, once for each line.
	InFlight int
	// First is the offset of the first record of the window, -1 if there is none.
	First int64
	// End is where fetching goes on: behind the last record that was added, -1 if none was.
	End int64
	// Oldest is how long ago the first record of the window was fetched, 0 if there is none.
	Oldest time.Duration
	// Behind is the age of the first record of the window by its own timestamp, 0 if there is none.
	Behind time.Duration
}

// Load tells what the claim has in memory.
func (c *Claim) Load() Load {
	c.mu.Lock()
	defer c.mu.Unlock()
	load := Load{Records: c.open, Bytes: c.bytes, InFlight: c.inFlight, First: -1, End: c.end}
	if len(c.window) > 0 {
		first := c.window[0]
		load.First, load.Oldest = first.rec.Offset, time.Since(first.added)
		load.Behind = max(time.Since(first.rec.Timestamp), 0) // a producer's clock may be ahead
	}
	return load
}

// Running is one record whose attempt runs.
type Running struct {
	Record *record.Record
	Line   *Line
	For    time.Duration
	// Reported says whether an earlier call of Overdue gave it.
	Reported bool
}

// Report is the report of a record that runs for too long.
func (r Running) Report(most time.Duration) record.Report {
	return record.Report{
		Kind: record.ReportStuckRecord, Route: r.Line.Name(), Topic: r.Record.Topic, Partition: r.Record.Partition, Offset: r.Record.Offset, Age: r.For,
		Hint: fmt.Sprintf("its handler does not heed its context, or its decoder does not return; after MaxPollInterval %s this process gives up", most),
	}
}

// Hung is the error of a process that gives up for it, nil until it has been running for longer than most.
func (r Running) Hung(most time.Duration) error {
	if r.For <= most {
		return nil
	}
	return fmt.Errorf("%s/%d offset %d has been running for %s, longer than MaxPollInterval %s",
		r.Record.Topic, r.Record.Partition, r.Record.Offset, r.For.Round(time.Second), most)
}

// Overdue gives the records that have been running for longer than their line's Patience, and marks them reported.
// Waits, holds and back-offs are no running time.
func (c *Claim) Overdue() []Running {
	c.mu.Lock()
	defer c.mu.Unlock()
	var late []Running
	for _, l := range c.lines {
		for b := range l.batches {
			late = b.overdue(late)
		}
	}
	return late
}

func (b *Batch) overdue(late []Running) []Running {
	for _, s := range b.seats {
		if s.batch != b || s.state != running {
			continue
		}
		since, ok := s.rec.RunningSince()
		if took := time.Since(since); ok && took > b.line.cfg.Patience {
			late = append(late, Running{Record: s.rec, Line: b.line, For: took, Reported: s.reported})
			s.reported = true
		}
	}
	return late
}

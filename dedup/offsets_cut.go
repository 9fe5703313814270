package dedup

import (
	"fmt"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// regrown says whether r, which the image has as done, cannot be the record that was: its leader came after the one that
// wrote the last of those. Leaders' epochs only grow along a log, so that log was cut below them, and grew again.
//
// Whoever reads the log looks for that where a claim begins, if the database answers then, and again where it is told of a
// loss. The database is away -> the claim begins at the committed offset, unchecked -> the database is back, and the new
// records pass for the old ones: this is the last to see it.
func (x *image) regrown(r *record.Record) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	epoch := x.leaders.before(x.low)
	return epoch >= 0 && r.Offset < x.low && r.LeaderEpoch > epoch
}

// cut is the verdict on such a record's partition: nothing of it runs, or is taken for done.
func (s *offsetStore) cut(r *record.Record) error {
	err := fmt.Errorf("a record of leader epoch %d is at offset %d, below what is done of earlier leaders", r.LeaderEpoch, r.Offset)
	if s.image(partition{r.TopicID, r.Partition}).first(record.ReportTruncated) {
		s.rt.in.report(record.Report{
			Kind: record.ReportTruncated, Route: s.rt.cfg.Name, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Err: err,
			Hint: "the log lost records that the offset store knows as done, and their offsets come again: the partition is held; " +
				"see 'A log that was cut' in docs/operations.md, then restart",
		})
	}
	return fault.Unavailable(err, "route "+s.rt.cfg.Name)
}

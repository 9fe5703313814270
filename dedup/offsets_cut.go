package dedup

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// top is a record that is done or dead: its offset, and the epoch of the leader that wrote it.
type top struct {
	offset int64
	epoch  int32
}

// tops are the last records of each leader, as far as they are known: one an epoch, in the order of these. What they say
// stays true, be they old or few, for epochs only grow along a log: a record at or below one of them that has a later
// leader is another than was there. The log was cut, and grew again.
//
//	done up to 150, 100 waits ─► the process dies ─► cut to 120, 120 to 155 are new ─► 100 waits again, and 120 passes for done
//
// Whoever reads the log looks for that where a claim begins, if the database answers then and if the log was cut below the
// first that is not done, and again where it is told of a loss. This is the last to see it.
type tops []top

// maxTops bounds them: a claim lives for months, and each election adds one. It takes no more than those of the records that
// are in flight at a time.
const maxTops = 8

// note is told of a record that is done or dead, in s's memory. An epoch that is unknown (-1) says nothing.
func (s tops) note(offset int64, epoch int32) tops {
	if epoch < 0 {
		return s
	}
	i, ok := slices.BinarySearchFunc(s, epoch, func(t top, epoch int32) int { return cmp.Compare(t.epoch, epoch) })
	if ok {
		s[i].offset = max(s[i].offset, offset)
		return s
	}
	s = slices.Insert(s, i, top{offset, epoch})
	return s[max(0, len(s)-maxTops):]
}

// highest is the one that the row keeps.
func (s tops) highest() top {
	if len(s) == 0 {
		return top{-1, -1}
	}
	return slices.MaxFunc(s, func(a, b top) int { return cmp.Compare(a.offset, b.offset) })
}

// regrown says whether r cannot have been there when what is known was.
func (s tops) regrown(r *record.Record) bool {
	for _, t := range s {
		if t.epoch < r.LeaderEpoch && t.offset >= r.Offset {
			return true
		}
	}
	return false
}

// look notes that r shows a cut, and gives what this claim knows of one. The lock is held.
func (x *image) look(r *record.Record) error {
	if x.cut == nil && x.tops.regrown(r) {
		x.cut = fmt.Errorf("a record of leader epoch %d is at offset %d, below what is done of earlier leaders", r.LeaderEpoch, r.Offset)
	}
	return x.cut
}

// answer is the image's, for a record that is to be looked at, run or buried. From the first that shows that the log was cut
// until its claim ends, nothing of the partition is run, taken for done or dead, or marked: the error says so.
func (s *offsetStore) answer(x *image, r *record.Record) (a Answer, ask bool, err error) {
	a, ask, err = x.answer(r)
	if err == nil {
		return a, ask, nil
	}
	if x.first(record.ReportTruncated) {
		s.rt.in.report(record.Report{
			Kind: record.ReportTruncated, Route: s.rt.cfg.Name, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Err: err,
			Hint: "the log lost records that the offset store knows as done, and their offsets come again: the partition is held; " +
				"see 'A log that was cut' in docs/operations.md, then restart",
		})
	}
	return unseen, false, fault.Unavailable(err, "route "+s.rt.cfg.Name)
}

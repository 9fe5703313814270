package dedup

import "time"

// pace is how many records a group of one route takes: about as many as get through in MaxBatchTime. A row is inserted
// for each record that is taken, and taken back for each that did not run before the cut, so groups that are always full
// would insert the rows of slow records many times over.
//
//	cut after n records             the limit falls to n less an eighth: the next group gets through
//	full, and done in half the time it doubles, up to MaxBatch
//	its attempt timed out           it falls to an eighth
//	anything else                   says nothing
//
// A group that cannot be cut, because its effects are one trip or one call, and took too long has the limit fall in
// proportion.
//
// It is not safe for concurrent use: the route's lock guards it.
type pace struct {
	limit int // at least 1
	most  int // MaxBatch
	time  time.Duration
}

// firstLimit is what a route begins with. One of fast handlers has full groups after three of them, and one of slow
// handlers has taken back no more than this a writer when it knows better.
const firstLimit = 4 * chunk

func newPace(most int, d time.Duration) pace {
	return pace{limit: max(1, min(firstLimit, most)), most: max(1, most), time: d}
}

// observe learns from a group of so many records, of which through were dealt with after its handlers had run for took.
func (p *pace) observe(size, through int, took time.Duration) {
	switch {
	case through < size && took > p.time:
		p.limit = min(p.limit, max(1, through-through/8))
	case through == size && size >= p.limit && took < p.time/2:
		p.limit = min(2*p.limit, p.most)
	}
}

// observeWhole is observe for a group whose records are worked on as one.
func (p *pace) observeWhole(size, through int, took time.Duration) {
	if size > 1 && took > p.time {
		p.limit = min(p.limit, max(1, int(int64(size)*int64(p.time)/int64(took))))
		return
	}
	p.observe(size, through, took)
}

// timedOut learns from a group of so many records whose work as one took longer than an attempt may: each of them is alone
// next time, and the groups after them must not end so again.
func (p *pace) timedOut(size int) { p.limit = min(p.limit, max(1, size/8)) }

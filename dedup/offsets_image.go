package dedup

import (
	"bytes"
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/headrace/headrace/record"
)

// image is what one partition's row says, in memory, while this process has acquired it.
//
// It has two locks. The turn is held from a mark to the answer to its COMMIT: two groups that marked side by side would
// each write the row without the other's records. mu guards the fields, and is held for no longer than it takes to read
// or write them.
type image struct {
	at   partition
	turn chan struct{} // has room for one: who puts something in has the turn

	mu       sync.Mutex
	claim    <-chan struct{} // whose records it was acquired for: a claim is known by its Soft
	epoch    int64           // 0: not acquired, or lost
	low      int64           // everything below is done
	done     runs            // what is done at or above low
	graves   runs            // dead, and not done
	leaders  leaders
	tops     tops               // which records were there: none of them is another now
	cut      error              // what showed this claim that the log was cut
	start    int64              // the offset of the claim's first record, as Claimed said
	begun    bool               // start is known
	before   <-chan struct{}    // the claim before the one that start is of
	outside  []*record.Record   // settled, or about to be, without a mark: the next one takes them along
	looked   map[int64]lookedAt // what this claim came to before, and is not done
	overtook int                // how often another claim fenced this one off since its last mark
	rests    time.Time          // when it may be acquired again
	reported map[string]bool    // what this claim has reported
}

// lookedAt is what was made of a record before, in this claim.
type lookedAt uint8

const (
	looked lookedAt = 1 << iota // Look said that it is fresh
	tried                       // it failed
)

// lease is an image as a group found it: with another epoch than that, nothing of the group can be committed.
type lease struct {
	img   *image
	epoch int64
}

// takeTurn takes it from whoever has a connection already. The error is ctx's.
func (x *image) takeTurn(ctx context.Context) error {
	select {
	case x.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (x *image) endTurn() { <-x.turn }

// is says whether the image was acquired for the claim, and as which lease.
func (x *image) is(claim <-chan struct{}) (lease, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return lease{x, x.epoch}, x.epoch != 0 && x.claim == claim
}

// lose forgets what the row says: another claim has it, or nobody knows what became of the last mark.
func (x *image) lose(l lease, overtaken bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.epoch != l.epoch {
		return
	}
	x.epoch = 0
	if overtaken {
		x.overtook++
		x.rests = time.Now().Add(restAfter(x.overtook))
	}
}

// restAfter is how long a claim that was fenced off waits before it acquires the partition again. Two processes may both
// believe that it is theirs, until the session of one of them ends: in the meantime each gets something done.
func restAfter(times int) time.Duration {
	d := min(5*time.Millisecond<<min(times, 10), 4*time.Second)
	return d/2 + rand.N(d/2)
}

// become takes over what the row says. Everything before the claim's first record is done: the committed offset, from
// which the claim was read, moves over nothing else. What is in between in the log can be many small gaps, which would
// stay for ever.
func (x *image) become(claim <-chan struct{}, epoch int64, row storedOffsets) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.claim != claim {
		x.looked, x.reported, x.outside, x.tops, x.cut = nil, nil, nil, nil, nil
	}
	x.claim, x.epoch = claim, epoch
	x.leaders = newLeaders(row.low, row.done.end(row.low), row.leader)
	x.tops = slices.Clone(x.tops).note(row.low-1, row.leader).note(row.top.offset, row.top.epoch)
	x.low, x.done, x.graves = row.low, row.done, row.graves
	x.lift(x.start)
}

func (x *image) lift(low int64) {
	if low > x.low {
		x.low = low
		x.low, x.done = settle(x.low, x.done.above(low))
		x.graves = x.graves.above(x.low)
	}
}

// settle moves low over what is done right above it.
func settle(low int64, done runs) (int64, runs) {
	if len(done) > 0 && done[0].from <= low {
		low, done = max(low, done[0].to), done[1:]
	}
	return low, done
}

// answer is what the image says about r; ask says that only the inbox's row can tell. The error says that the log was cut:
// then nobody can tell. Ask offsetStore.answer.
func (x *image) answer(r *record.Record) (a Answer, ask bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.look(r); err != nil {
		return unseen, false, err
	}
	switch {
	case r.Offset < x.low || x.done.has(r.Offset):
		return Own, false, nil
	case x.graves.has(r.Offset):
		return DeadOwn, true, nil
	}
	return Fresh, x.looked[r.Offset]&tried != 0, nil
}

// remember notes what was made of r.
func (x *image) remember(r *record.Record, what lookedAt) (again bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	again = x.looked[r.Offset]&what != 0
	if x.looked == nil {
		x.looked = map[int64]lookedAt{}
	}
	x.looked[r.Offset] |= what
	return again
}

// leave notes that r settles without a mark.
func (x *image) leave(r *record.Record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.claim == r.Soft() && !slices.Contains(x.outside, r) {
		x.outside = append(x.outside, r)
	}
}

// first says whether the claim reports this kind for the first time.
func (x *image) first(kind string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.reported[kind] {
		return false
	}
	if x.reported == nil {
		x.reported = map[string]bool{}
	}
	x.reported[kind] = true
	return true
}

// mark is what a partition's row says once a transaction is committed. Whoever has it has the partition's turn.
type mark struct {
	lease
	low          int64
	done, graves runs
	leaders      leaders
	tops         tops
	rs           []*record.Record // that are done with it
	outside      int              // how many of them were settled without it
}

// newMark is the image with more: rs are records that are done once the transaction is, dead ones are only once they are
// settled. ok is false if the lease is over, or the log was cut: a mark would hide that from whoever comes next.
func (x *image) newMark(l lease, rs, dead []*record.Record) (m mark, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.epoch != l.epoch || x.cut != nil {
		return mark{}, false
	}
	m = mark{lease: l, low: x.low, leaders: x.leaders, tops: slices.Clone(x.tops), done: slices.Clone(x.done), rs: rs}
	for _, r := range x.outside {
		if r.Settled() {
			m.rs = append(m.rs, r)
			m.outside++
		}
	}
	for _, r := range m.rs {
		m.add(r)
	}
	m.graves = x.graves.without(m.done)
	for _, r := range dead {
		m.graves = m.graves.add(run{r.Offset, r.Offset + 1})
		m.tops = m.tops.note(r.Offset, r.LeaderEpoch)
	}
	m.low, m.done = settle(m.low, m.done)
	m.graves = m.graves.above(m.low)
	return m, true
}

// add makes r done, and with it what is not in the log between the record before it and r.
func (m *mark) add(r *record.Record) {
	from := min(r.Follows+1, r.Offset)
	if r.Offset < m.low {
		return
	}
	m.done = m.done.add(run{max(from, m.low), r.Offset + 1})
	m.leaders = m.leaders.note(r.Offset, r.LeaderEpoch)
	m.tops = m.tops.note(r.Offset, r.LeaderEpoch)
}

// stand makes the image what the row is now.
func (m *mark) stand() {
	x := m.img
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.epoch != m.epoch {
		return
	}
	x.low, x.done, x.graves, x.leaders, x.tops, x.overtook = m.low, m.done, m.graves, m.leaders, m.tops, 0
	if m.outside > 0 {
		x.outside = slices.DeleteFunc(x.outside, func(r *record.Record) bool { return slices.Contains(m.rs, r) })
	}
	if len(x.looked) > 0 {
		for _, r := range m.rs {
			delete(x.looked, r.Offset)
		}
	}
}

// byPartition is the order in which turns are taken and rows are marked.
func byPartition(a, b partition) int {
	if c := bytes.Compare(a.topic[:], b.topic[:]); c != 0 {
		return c
	}
	return cmp.Compare(a.n, b.n)
}

// leaders says which leader wrote the record before low: where each leader's first record is, as far as it was seen. A
// wrong one would look like a log that was cut, so that nothing is said where nobody knows.
type leaders struct {
	low     int64 // of the row, whose leader it kept
	atLow   int32
	unknown int64 // the row had records below it done, and kept of none whose they are
	terms   []term
}

type term struct {
	from  int64
	epoch int32
}

func newLeaders(low, end int64, epoch int32) leaders {
	return leaders{low: low, atLow: epoch, unknown: end}
}

// note is told of each record that is done.
func (l leaders) note(offset int64, epoch int32) leaders {
	if epoch < 0 {
		l.unknown = max(l.unknown, offset+1)
		return l
	}
	if n := len(l.terms); n > 0 && l.terms[n-1].epoch == epoch && l.terms[n-1].from <= offset {
		return l
	}
	i, ok := slices.BinarySearchFunc(l.terms, epoch, func(t term, epoch int32) int { return cmp.Compare(t.epoch, epoch) })
	switch {
	case !ok:
		l.terms = slices.Insert(slices.Clone(l.terms), i, term{offset, epoch})
	case offset < l.terms[i].from:
		l.terms = slices.Clone(l.terms)
		l.terms[i].from = offset
	}
	return l
}

// before is the leader of the record before low, -1 if nobody knows.
func (l leaders) before(low int64) int32 {
	if low == l.low {
		return l.atLow
	}
	epoch := int32(-1)
	for _, t := range l.terms {
		if low > l.unknown && t.from < low {
			epoch = t.epoch
		}
	}
	return epoch
}

package middleware_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

var seeds = flag.Int("seeds", 20, "how many random schedules to run")

// TestSchedules runs random schedules in virtual time: records of some keys, of which some fail in any way and some cannot
// be read, groups whose
// COMMIT fails or is unknown, a dead letter topic and a database that come and go, claims that are revoked in the middle;
// every other one with calls to a dependency that fails in any way, and in an outage always.
// Whatever happens: one outcome a record and claim, one effect, never effected and dead, keys in order, and nothing
// healthy is dead.
func TestSchedules(t *testing.T) {
	t.Parallel()
	for seed := range *seeds {
		bubble(t, strconv.Itoa(seed), func(t *testing.T) { newSchedule(t, uint64(seed)).run() })
	}
}

// fate is what a record's handler does.
type fate uint8

const (
	healthy fate = iota
	shaky        // fails for a while, fewer times than it has attempts
	poison
	panics
	exits
	exhausts
	skips
	waits // takes virtual time
	unreadable
	unreadablePanics
	decodesShaky // the decoder fails for a while, saying why
	decodesSkip
	lastFate = decodesSkip
)

type schedule struct {
	*bench
	t     *testing.T
	rnd   *rand.Rand
	fates map[int64]fate
	keys  map[int64]string
	all   []int64
	stops int
	name  string

	mu    sync.Mutex
	tries map[int64]int    // since the claim began
	reads map[int64]int    // by the decoder, since the claim began
	last  map[string]int64 // by domain: the last one that was effected, skipped or written to the dead letter topic
	// lastRead is last, of those that can be read.
	lastRead map[string]int64
	badness  *rand.Rand
	down     func() bool
	call     *callSchedule // nil for a route that does not call
}

func newSchedule(t *testing.T, seed uint64) *schedule {
	t.Helper()
	s := &schedule{
		bench: newBench(t), t: t, rnd: rand.New(rand.NewPCG(seed, 1)), badness: rand.New(rand.NewPCG(seed, 2)),
		fates: map[int64]fate{}, keys: map[int64]string{}, last: map[string]int64{}, lastRead: map[string]int64{}, name: "seed " + strconv.Itoa(int(seed)),
	}
	if seed%3 == 0 {
		s.stops = 1 + s.rnd.IntN(3)
	}
	from := time.Duration(s.rnd.IntN(2000)) * time.Millisecond
	to := from + time.Duration(s.rnd.IntN(20))*time.Second
	s.down = func() bool { at := time.Since(s.began); return at >= from && at < to }
	s.writers(t, 1+s.rnd.IntN(3))
	s.in.commit, s.in.bury, s.topic.write = s.commit, s.bury, s.write
	s.rt.Decode = s.decode
	s.records()
	if seed%2 == 1 {
		s.call = newCallSchedule(s, seed)
	}
	return s
}

func (s *schedule) records() {
	offset, keys := int64(0), 1+s.rnd.IntN(40)
	for range 150 {
		offset += 1 + s.rnd.Int64N(3)
		if s.rnd.IntN(5) > 0 {
			s.keys[offset] = strconv.Itoa(s.rnd.IntN(keys))
		}
		if f := fate(s.rnd.IntN(50)); f <= lastFate {
			s.fates[offset] = f
		}
		s.all = append(s.all, offset)
	}
}

func (s *schedule) handle(m *message.Message) error {
	o := offsetOf(m)
	s.mu.Lock()
	s.tries[o]++
	n := s.tries[o]
	s.mu.Unlock()
	switch s.fates[o] {
	case healthy, decodesShaky:
	case unreadable, unreadablePanics, decodesSkip:
		s.t.Errorf("%s: the handler was given %d (%d)", s.name, o, s.fates[o])
	case shaky:
		return s.shaky(n)
	case poison:
		return errBoom
	case panics:
		panic(fmt.Sprint("boom ", o))
	case exits:
		runtime.Goexit()
	case exhausts:
		return fault.Transient(errBoom)
	case skips:
		return fault.Skip("not ours")
	case waits:
		return sleep(m.Context(), time.Second)
	}
	return nil
}

func (s *schedule) decode(r *record.Record) error {
	switch s.fates[r.Offset] {
	case unreadable:
		return errBoom
	case unreadablePanics:
		panic(fmt.Sprint("boom ", r.Offset))
	case decodesSkip:
		return fault.Skip("not ours")
	case decodesShaky:
		s.mu.Lock()
		s.reads[r.Offset]++
		n := s.reads[r.Offset]
		s.mu.Unlock()
		if err := s.shaky(n); err != nil {
			return err
		}
	case healthy, shaky, poison, panics, exits, exhausts, skips, waits:
	}
	r.Event = new(int)
	return nil
}

// shaky fails in all ways that cost nothing, and in two that do.
func (s *schedule) shaky(try int) error {
	switch try {
	case 1:
		return fault.Transient(errBoom)
	case 2, 3:
		return fault.Busy(errBoom)
	case 4:
		return fault.Unavailable(errBoom, "payments")
	case 5:
		return fault.RetryAfter(errBoom, time.Minute)
	case 6:
		return fault.RetryAfter(errBoom, time.Second)
	}
	return nil
}

func (s *schedule) chance(oneIn int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.badness.IntN(oneIn) == 0
}

func (s *schedule) commit(rs []*record.Record) error {
	unknown := s.chance(20)
	if s.down() || !unknown && s.chance(15) {
		return errors.New("database gone")
	}
	for _, r := range rs {
		if !s.in.knows(r) { // after an unknown COMMIT the inbox answers for it, and nothing happens
			s.inOrder(r)
		}
	}
	if unknown {
		return errUnknown
	}
	return nil
}

func (s *schedule) bury(*record.Record) error {
	if s.down() || s.chance(10) {
		return fault.Unavailable(errors.New("database gone"), fault.Database)
	}
	return nil
}

func (s *schedule) write(ctx context.Context, l dlq.Letter) error {
	switch f := s.fates[l.Record.Offset]; f {
	case poison, panics, exits, exhausts, unreadable, unreadablePanics:
	case healthy, shaky, skips, waits, decodesShaky, decodesSkip:
		if s.call != nil && s.call.deadly(l.Record.Offset) {
			break
		}
		s.t.Errorf("%s: healthy %d (%d) is dead: %v", s.name, l.Record.Offset, f, l.Err)
	}
	if ctx.Err() != nil {
		s.t.Errorf("%s: letter of %d under a dead context", s.name, l.Record.Offset)
	}
	if s.chance(6) {
		return errors.New("broker gone")
	}
	s.inOrder(l.Record)
	if s.chance(10) {
		return errUnknown
	}
	return nil
}

// inOrder: within a claim the records of a key get their ends in order. A repeat of the last one is none.
func (s *schedule) inOrder(r *record.Record) {
	if s.call != nil {
		s.call.ended(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Domain() == "" {
		return
	}
	unread := s.fates[r.Offset] == unreadable || s.fates[r.Offset] == unreadablePanics
	last := s.last[r.Domain()]
	if unread { // those in a row die side by side: no handler would have seen them
		last = s.lastRead[r.Domain()]
	}
	if last > r.Offset {
		s.t.Errorf("%s: key %s: %d after %d", s.name, r.Key, r.Offset, last)
	}
	s.last[r.Domain()] = max(s.last[r.Domain()], r.Offset)
	if !unread {
		s.lastRead[r.Domain()] = r.Offset
	}
}

func (s *schedule) run() {
	h := s.handler(s.t, s.handle)
	var marked int64
	for end := s.all[len(s.all)-1] + 1; marked != end; s.stops-- {
		marked = s.oneClaim(h, marked)
	}
	elapse(time.Minute) // for calls that were left behind
	for _, o := range s.all {
		s.check(o)
	}
	if s.call != nil {
		_, stuck := s.rt.Stuck()
		require.False(s.t, stuck, s.name)
		require.Zero(s.t, s.in.inCalls(), s.name)
	}
}

// oneClaim serves what is above the watermark until all is marked, or for a random while.
func (s *schedule) oneClaim(h message.HandlerFunc, marked int64) int64 {
	s.mu.Lock()
	s.tries, s.reads, s.last, s.lastRead = map[int64]int{}, map[int64]int{}, map[string]int64{}, map[string]int64{}
	s.mu.Unlock()
	if s.call != nil {
		s.call.begin()
	}
	c := newClaim(1+s.rnd.IntN(4), 1+s.rnd.IntN(60), s.rt.Gates)
	c.byPart = s.rnd.IntN(5) == 0
	var mark log[int64]
	c.mark = mark.add
	var rs []*record.Record
	for _, o := range s.all {
		if o >= marked {
			rs = append(rs, rec(o, s.keys[o]))
		}
	}
	served := make(chan struct{})
	go func() { c.serve(h); close(served) }()
	c.add(rs...)
	if s.stops > 0 {
		elapse(time.Duration(s.rnd.IntN(15_000)) * time.Millisecond)
	} else {
		c.idle()
	}
	began := time.Now()
	c.end(5 * time.Second)
	require.LessOrEqual(s.t, time.Since(began), 5*time.Second, s.name)
	<-served
	synctest.Wait()
	require.Zero(s.t, c.acked, s.name)
	for o, is := range c.outcomes {
		require.Len(s.t, is, 1, "%s: %d", s.name, o)
	}
	if ms := mark.get(); len(ms) > 0 {
		marked = ms[len(ms)-1]
	}
	return marked
}

func (s *schedule) check(o int64) {
	if s.call != nil && s.call.check(o) {
		return
	}
	effects, letters := s.in.effectsOf(o), s.topic.of(o)
	switch s.fates[o] {
	case healthy, shaky, waits, decodesShaky:
		require.Equal(s.t, 1, effects, "%s: %d", s.name, o)
	case poison, panics, exits, exhausts, unreadable, unreadablePanics:
		require.NotEmpty(s.t, letters, "%s: %d", s.name, o)
		for _, l := range letters {
			require.LessOrEqual(s.t, l.Attempts, 3, "%s: %d", s.name, o)
		}
		require.Zero(s.t, effects, "%s: %d", s.name, o)
	case skips, decodesSkip:
		require.Zero(s.t, effects+len(letters), "%s: %d", s.name, o)
	}
}

// TestGateBoundsAnOutage: the same outage with and without the gate at the scheduler.
func TestGateBoundsAnOutage(t *testing.T) {
	t.Parallel()
	const backlog = 2000
	held := map[bool]int{}
	for _, gated := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			h := b.handler(t, func(*message.Message) error {
				if time.Since(b.began) < time.Minute {
					return fault.Unavailable(errBoom, "payments")
				}
				return nil
			})
			var gates *middleware.Gates
			if gated {
				gates = b.rt.Gates
			}
			c := newClaim(2, 50, gates)
			served := make(chan struct{})
			go func() { c.serve(h); close(served) }()
			c.add(recs(backlog, ownKey)...)
			c.idle()
			held[gated] = c.maxWaits
			require.LessOrEqual(t, time.Since(b.began), time.Minute+10*time.Second, "recovered")
			c.end(0)
			<-served
		})
	}
	require.LessOrEqual(t, held[true], 2*50, "lanes × MaxBatch")
	require.Equal(t, backlog, held[false], "all of the backlog waits in memory")
}

package claim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/record"
)

// seeds is how many random schedules run; HEADRACE_SEEDS makes it more.
func seeds() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("HEADRACE_SEEDS"), 10, 32); err == nil {
		return n
	}
	return 250
}

// TestSchedules runs random schedules of handlers that succeed, fail, wait, hold, nack, settle late and twice, over one
// to three lines, until all is settled or the claim ends in the middle.
func TestSchedules(t *testing.T) {
	t.Parallel()
	for seed := range seeds() {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newSchedule(t, seed).run() })
		})
	}
}

type schedule struct {
	t     *testing.T
	rnd   *rand.Rand
	claim *Claim
	recs  []*kgo.Record
	wg    sync.WaitGroup

	mu    sync.Mutex
	lines []*lineModel
	cut   bool // the claim ends before all is settled
}

// lineModel is what one line must never break.
type lineModel struct {
	s    *schedule
	line *Line
	from int64 // the first offset that it must get

	mu      sync.Mutex
	done    map[int64]bool
	last    map[string]int64          // by domain: the last effect
	inside  map[string]map[*Batch]int // by domain: open deliveries a batch
	running map[*Batch]int            // for the first time
	again   map[*record.Record]bool   // those that run again
}

func newSchedule(t *testing.T, seed uint64) *schedule {
	rnd := rand.New(rand.NewPCG(seed, 1))
	s := &schedule{t: t, rnd: rnd, claim: newTestClaim(ample), cut: seed%3 == 0}
	offset, keys := int64(0), 1+rnd.IntN(40)
	for range 300 {
		offset += 1 + rnd.Int64N(3)
		key := ""
		if rnd.IntN(5) > 0 {
			key = fmt.Sprint(rnd.IntN(keys))
		}
		s.recs = append(s.recs, raw(offset, key))
	}
	return s
}

func (s *schedule) run() {
	for range 1 + s.rnd.IntN(2) {
		s.addLine(s.rnd)
	}
	fetches := rand.New(rand.NewPCG(s.rnd.Uint64(), 5))
	s.wg.Go(func() { s.fetch(fetches) })
	wait := time.Hour
	if s.cut {
		wait = time.Duration(s.rnd.IntN(3000)) * time.Microsecond
	}
	<-time.After(wait)
	synctest.Wait()
	s.check()
	s.claim.EndSoft(record.ErrRevoked)
	select {
	case <-s.claim.Drained():
	case <-time.After(10 * time.Millisecond):
	}
	s.end()
	s.wg.Wait()
}

// end closes the claim: the mark that it gives covers nothing that is unsettled, and nothing settles after it.
func (s *schedule) end() {
	mark, ok := s.claim.Close(record.ErrRevoked)
	if !s.cut {
		require.True(s.t, ok)
		require.Equal(s.t, s.recs[len(s.recs)-1].Offset+1, mark.Offset)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.lines {
		m.mu.Lock()
		for _, rec := range s.recs {
			require.False(s.t, rec.Offset >= m.from && rec.Offset < mark.Offset && !m.done[rec.Offset], "the mark %d passed %d", mark.Offset, rec.Offset)
		}
		m.mu.Unlock()
	}
	if _, ok := s.claim.Watermark(); ok {
		s.t.Error("a closed claim has a watermark to commit")
	}
}

func (s *schedule) check() {
	if s.cut {
		return
	}
	require.Zero(s.t, s.claim.Load().Records, "stuck: %+v", s.claim.Load())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.lines {
		m.mu.Lock()
		for _, rec := range s.recs {
			require.True(s.t, rec.Offset < m.from || m.done[rec.Offset], "%d is missing", rec.Offset)
		}
		m.mu.Unlock()
		require.Empty(s.t, m.line.domains)
		require.Empty(s.t, m.line.batches)
		require.Equal(s.t, m.line.cfg.Lanes, m.line.lanes)
		require.Zero(s.t, m.line.resumed)
	}
}

func (s *schedule) fetch(rnd *rand.Rand) {
	for i, late := 0, rnd.IntN(3) == 0; i < len(s.recs); {
		n := min(1+rnd.IntN(60), len(s.recs)-i)
		s.claim.Add(s.recs[i : i+n])
		if i += n; late && i > len(s.recs)/3 {
			late = false
			s.addLine(rnd) // a subscription that comes later misses nothing that is not passed
		}
		<-time.After(time.Duration(rnd.IntN(200)) * time.Microsecond)
	}
}

func (s *schedule) addLine(rnd *rand.Rand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &lineModel{
		s: s, done: map[int64]bool{}, last: map[string]int64{},
		inside: map[string]map[*Batch]int{}, running: map[*Batch]int{},
		again: map[*record.Record]bool{},
	}
	m.line = s.claim.NewLine(LineConfig{
		Name: fmt.Sprint(len(s.lines)), Order: Order(rnd.IntN(3)), MaxBatch: 1 + rnd.IntN(60), Lanes: 1 + rnd.IntN(4),
	})
	if first := m.line.fresh.first; first != nil {
		m.from = first.entry.rec.Offset
	}
	s.lines = append(s.lines, m)
	own := rand.New(rand.NewPCG(rnd.Uint64(), 2))
	s.wg.Go(func() { m.deliver(own) })
}

func (m *lineModel) deliver(rnd *rand.Rand) {
	for {
		b := m.line.Next(nil, open)
		if b == nil {
			return
		}
		if rnd.IntN(20) == 0 {
			b.Return()
			continue
		}
		m.enter(b)
		rnd := rand.New(rand.NewPCG(rnd.Uint64(), 3))
		m.s.wg.Go(func() { m.handle(b, rnd) })
	}
}

// enter checks what a batch promises when it is handed out.
func (m *lineModel) enter(b *Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := int64(-1)
	for _, r := range b.Records {
		require.Greater(m.s.t, r.Offset, last, "a batch out of order")
		last = r.Offset
		m.running[b]++
		d := r.Domain()
		if d == "" {
			continue
		}
		if m.inside[d] == nil {
			m.inside[d] = map[*Batch]int{}
		}
		m.inside[d][b]++
		require.Len(m.s.t, m.inside[d], 1, "domain %s is in two batches", d)
	}
	require.LessOrEqual(m.s.t, len(m.running), m.line.cfg.Lanes, "more batches run than there are lanes")
}

// leave is called before the record's delivery ends, so that the model never sees less than there is.
func (m *lineModel) leave(b *Batch, r *record.Record, wasRunning bool) {
	if wasRunning {
		m.stop(b, r)
	}
	d := r.Domain()
	if d == "" {
		return
	}
	if m.inside[d][b]--; m.inside[d][b] == 0 {
		delete(m.inside[d], b)
	}
}

func (m *lineModel) stop(b *Batch, r *record.Record) {
	if m.again[r] {
		delete(m.again, r)
		return
	}
	if m.running[b]--; m.running[b] == 0 {
		delete(m.running, b)
	}
}

func (m *lineModel) handle(b *Batch, rnd *rand.Rand) {
	if rnd.IntN(10) == 0 {
		m.giveBack(b, b.Records, true)
		<-time.After(time.Duration(rnd.IntN(300)) * time.Millisecond)
		for _, r := range b.Records {
			require.False(m.s.t, r.Settle(record.Effected), "a given back delivery settled")
		}
		return
	}
	m.work(b, b.Records, rnd)
}

// work runs records like the stack: one that fails becomes the head of a chain, its followers stay behind it.
func (m *lineModel) work(b *Batch, rs []*record.Record, rnd *rand.Rand) {
	chains := map[string][]*record.Record{}
	for _, r := range rs {
		d := r.Domain()
		if d == "" {
			d = fmt.Sprint("#", r.Offset)
		}
		if chains[d] != nil || rnd.IntN(12) == 0 {
			chains[d] = append(chains[d], r)
			continue
		}
		if rnd.IntN(8) == 0 {
			<-time.After(time.Duration(rnd.IntN(100)) * time.Microsecond)
		}
		m.settle(b, r)
	}
	var wg sync.WaitGroup
	for _, chain := range chains {
		m.mu.Lock()
		for _, r := range chain {
			m.stop(b, r)
		}
		m.mu.Unlock()
		record.Wait(chain)
		rnd := rand.New(rand.NewPCG(rnd.Uint64(), 4))
		wg.Go(func() { m.retry(b, chain, rnd) })
	}
	wg.Wait()
}

func (m *lineModel) retry(b *Batch, chain []*record.Record, rnd *rand.Rand) {
	select {
	case <-time.After(time.Duration(rnd.IntN(2000)) * time.Microsecond):
	case <-chain[0].Soft():
	}
	if rnd.IntN(6) == 0 || !record.Resume(chain) {
		m.giveBack(b, chain, false)
		return
	}
	m.mu.Lock()
	for _, r := range chain {
		m.again[r] = true
	}
	require.LessOrEqual(m.s.t, len(m.again), m.line.cfg.Lanes*m.line.cfg.MaxBatch, "more run again than there is room for")
	m.mu.Unlock()
	m.work(b, chain, rnd)
}

func (m *lineModel) settle(b *Batch, r *record.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := r.Domain()
	if d != "" {
		require.Greater(m.s.t, r.Offset, m.last[d], "domain %s ran out of order", d)
	}
	m.leave(b, r, true)
	if !r.Settle(record.Effected) {
		require.True(m.s.t, m.s.cut, "%d could not be settled", r.Offset)
		return
	}
	require.False(m.s.t, m.done[r.Offset], "%d settled twice", r.Offset)
	require.False(m.s.t, r.Settle(record.Effected), "the second settle won")
	m.done[r.Offset], m.last[d] = true, r.Offset
}

func (m *lineModel) giveBack(b *Batch, rs []*record.Record, running bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range rs {
		m.leave(b, r, running)
	}
	record.GiveBack(rs)
}

package middleware

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/headrace/headrace/downstream"
)

// FloodConfig says when so many records die that the deploy is at fault and not the data. The zero value has the
// defaults, which let a whole fetch of poison through: it is data that somebody else wrote.
type FloodConfig struct {
	// Run is how many dead letters in a row, with nothing else settled between them, one partition may write. Defaults
	// to 10,000: what a partition may have in flight.
	Run int
	// Ratio of dead letters among a partition's last outcomes from which on no more are admitted. Defaults to 0.9; above
	// 1 it never refuses.
	Ratio float64
	// Window is of how many outcomes Ratio is taken: of the last Window, once there were half as many. Defaults to
	// 20,000: so after 10,000 outcomes at the earliest.
	Window int
	// Probe is how often a refused record is run again to see whether things are better. Defaults to 30s.
	Probe time.Duration
}

func (c FloodConfig) withDefaults() FloodConfig {
	c.Run = or(c.Run, 10_000)
	c.Ratio = or(c.Ratio, 0.9)
	c.Window = or(c.Window, 20_000)
	c.Probe = or(c.Probe, 30*time.Second)
	return c
}

// FloodGuard gives the permits for dead letters, a partition at a time. When nearly everything fails it refuses: the
// records stay unsettled and without a verdict, and their partition waits until one that is tried again succeeds or an
// operator calls Release.
//
// It counts in this process, from when it was made: a new owner of a partition begins anew. It is safe for concurrent use,
// may be shared by the routes of a process or not, and needs no closing.
type FloodGuard struct {
	cfg FloodConfig

	mu    sync.Mutex
	parts map[Partition]*floodPart
}

// Partition names a partition of a topic.
type Partition struct {
	Topic     string
	Partition int32
}

type floodPart struct {
	run, out  int // dead in a row; permits that are neither used nor returned
	last, now tally
	gate      *downstream.Gate
}

// tally counts outcomes. Two of half a window each, the older dropped when the newer is full, are the sliding window.
type tally struct{ dead, all int }

// NewFloodGuard makes a guard that has seen nothing.
func NewFloodGuard(cfg FloodConfig) *FloodGuard {
	return &FloodGuard{cfg: cfg.withDefaults(), parts: map[Partition]*floodPart{}}
}

// Permit is the right to write one dead letter. Exactly one of Used and Return ends it; the zero Permit takes both for
// nothing.
type Permit struct {
	guard *FloodGuard
	part  *floodPart
}

// Admit gives a permit, or refuses. Permits that are out count as dead letters already, so that 500 verdicts that come
// at once stop at the limit, and not 500 after it.
func (f *FloodGuard) Admit(p Partition) (Permit, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	part := f.part(p)
	if f.over(part) {
		return Permit{}, false
	}
	part.out++
	return Permit{guard: f, part: part}, true
}

// Used says that the dead letter was written.
func (p Permit) Used() {
	if p.guard == nil {
		return
	}
	p.guard.mu.Lock()
	defer p.guard.mu.Unlock()
	p.part.out--
	p.part.run++
	p.part.count(p.guard.cfg.Window, 1, 1)
}

// Return says that there will be no dead letter.
func (p Permit) Return() {
	if p.guard == nil {
		return
	}
	p.guard.mu.Lock()
	defer p.guard.mu.Unlock()
	p.part.out--
}

// Settled says that n records of the partition were settled otherwise. That ends a run, and what waits goes on.
func (f *FloodGuard) Settled(p Partition, n int) {
	f.mu.Lock()
	part := f.part(p)
	part.run = 0
	part.count(f.cfg.Window, 0, n)
	open := !f.over(part)
	f.mu.Unlock()
	if open {
		part.gate.Up()
	}
}

// Release lets a partition go on as if nothing had happened in it: for the operator who knows that the records are as
// bad as they look. The guard counts from 0 then, and refuses again after another Run. No command calls it: a program
// that wants it at night serves it, for the partitions of Refusing.
func (f *FloodGuard) Release(p Partition) {
	f.mu.Lock()
	part := f.part(p)
	part.run, part.last, part.now = 0, tally{}, tally{}
	f.mu.Unlock()
	part.gate.Up()
}

// Refusing lists the partitions that hold because of the guard, and since when: for readiness and alerts.
func (f *FloodGuard) Refusing() map[Partition]time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := map[Partition]time.Time{}
	for p, part := range f.parts {
		if since, shut := part.gate.Since(); shut {
			held[p] = since
		}
	}
	return held
}

// why is what the records of a partition that is refused die of, by the last one that was tried.
func (f *FloodGuard) why(p Partition) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if part := f.parts[p]; part != nil {
		return part.gate.Why()
	}
	return nil
}

// Partitions gives the keys of what Refusing returned, in order.
func Partitions(m map[Partition]time.Time) []Partition {
	ps := make([]Partition, 0, len(m))
	for p := range m {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b Partition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return ps
}

// refuse shuts the partition because of why, says whether it was open before, and gives the gate at which the record waits.
func (f *FloodGuard) refuse(p Partition, why error) (*downstream.Gate, bool) {
	f.mu.Lock()
	part := f.part(p)
	f.mu.Unlock()
	_, shut := part.gate.Since()
	if !shut {
		part.gate.DownBecause(time.Time{}, why)
	}
	return part.gate, !shut
}

// over asks for one more dead letter. Callers hold mu.
func (f *FloodGuard) over(p *floodPart) bool {
	if p.run+p.out >= f.cfg.Run {
		return true
	}
	dead, all := p.last.dead+p.now.dead+p.out, p.last.all+p.now.all+p.out
	return all >= f.cfg.Window/2 && float64(dead) >= f.cfg.Ratio*float64(all)
}

func (f *FloodGuard) part(p Partition) *floodPart {
	part := f.parts[p]
	if part == nil {
		part = &floodPart{gate: downstream.NewGate(downstream.GateConfig{Name: Flood, Base: f.cfg.Probe, Cap: f.cfg.Probe})}
		f.parts[p] = part
	}
	return part
}

func (p *floodPart) count(window, dead, all int) {
	p.now.dead += dead
	p.now.all += all
	if p.now.all >= window/2 {
		p.last, p.now = p.now, tally{}
	}
}

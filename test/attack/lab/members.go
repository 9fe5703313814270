package lab

import (
	"maps"
	"sync"

	"github.com/headrace/headrace/test/attack/member"
)

// Slots is how many members there may be.
const Slots = 4

// Members are the processes of the consumer group. Safe for concurrent use.
type Members struct {
	Slots [Slots]*Slot
}

func newMembers(dir string, cfg member.Config) *Members {
	ms := &Members{}
	for i := range ms.Slots {
		ms.Slots[i] = &Slot{dir: dir, number: i, cfg: cfg, ends: map[string]int{}}
	}
	return ms
}

// Configure changes how members are started from now on; slots count from 0.
func (ms *Members) Configure(change func(slot int, c *member.Config)) {
	for i, s := range ms.Slots {
		s.mu.Lock()
		change(i, &s.cfg)
		s.mu.Unlock()
	}
}

// Scale starts or ends members so that n are left. Those that end are asked to.
func (ms *Members) Scale(n int) error {
	var wg sync.WaitGroup
	errs := make(chan error, Slots)
	for i, s := range ms.Slots {
		if i < n {
			wg.Go(func() { errs <- s.Up() })
		} else {
			wg.Go(func() { errs <- s.Term() })
		}
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Running are those that are up.
func (ms *Members) Running() (up []*Slot) {
	for _, s := range ms.Slots {
		if s.Running() {
			up = append(up, s)
		}
	}
	return up
}

// Kill ends all for good.
func (ms *Members) Kill() {
	for _, s := range ms.Slots {
		s.Down()
	}
}

// Buggy counts the processes that were started with a bug.
func (ms *Members) Buggy() (n int) {
	for _, s := range ms.Slots {
		s.mu.Lock()
		n += s.buggy
		s.mu.Unlock()
	}
	return n
}

// Ends counts how processes have ended.
func (ms *Members) Ends() map[string]int {
	all := map[string]int{}
	for _, s := range ms.Slots {
		s.mu.Lock()
		for how, n := range maps.All(s.ends) {
			all[how] += n
		}
		s.mu.Unlock()
	}
	return all
}

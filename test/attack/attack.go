package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headrace/headrace/test/attack/audit"
	"github.com/headrace/headrace/test/attack/faults"
	"github.com/headrace/headrace/test/attack/lab"
	"github.com/headrace/headrace/test/attack/load"
	"github.com/headrace/headrace/test/attack/member"
)

// attack is one run of a scenario.
type attack struct {
	lab      *lab.Lab
	scenario scenario
	seed     uint64
	lasts    time.Duration
	rate     int
	keep     bool
	apart    time.Duration // between a fault and the next of its lane, at least

	mu       sync.Mutex
	struck   map[string]int // faults, by name
	troubles []string       // what the driver itself could not do
	strikes  []strike       // those of which the recovery is measured
}

const (
	// startTime is what the members may take to have a first effect.
	startTime = 2 * time.Minute
	// drainTime is for how long nothing may move, once all is well again: each record that ends its process costs several of
	// them, and a session each. drainsTime is for all of it.
	drainTime  = 3 * time.Minute
	drainsTime = 15 * time.Minute
	auditTime  = 2 * time.Minute
	// calmTime is before the first fault: what a member needs then is what it may need.
	calmTime = 4 * time.Second
	// letGoTime is what members may take to close what they need no more.
	letGoTime = 20 * time.Second
)

// run attacks, mends, waits until the members are through, stops them, and counts.
func (a *attack) run(ctx context.Context) (report, error) {
	begin := time.Now()
	a.struck = map[string]int{}
	s, err := a.lab.Site(ctx, fmt.Sprintf("%s-%d-%d", a.scenario.name, a.seed, time.Now().Unix()%100_000))
	if err != nil {
		return report{}, err
	}
	defer func() { _ = s.Close(ctx) }()
	slog.Info("attack", "scenario", a.scenario.name, "seed", a.seed, "logs", s.Dir)
	r := report{Seed: a.seed, Scenario: a.scenario.name}
	if err := a.assault(ctx, s, &r); err != nil {
		return report{}, err
	}
	if err := a.count(ctx, s, &r); err != nil {
		return report{}, err
	}
	r.Seconds = int(time.Since(begin).Seconds())
	if len(r.Violations) > 0 || a.keep {
		r.Logs = s.Dir
		return r, r.shorten()
	}
	return r, os.RemoveAll(s.Dir)
}

// assault attacks until the members are through, and stops them.
func (a *attack) assault(ctx context.Context, s *lab.Site, r *report) (err error) {
	watch := startWatch(ctx, s)
	defer func() { s.Waited, r.Redelivered, r.Reports = watch.stop() }()
	if r.Clients, err = a.rage(ctx, s, watch, r); err != nil {
		return err
	}
	end := time.Now()
	through := drain(ctx, s, drainTime)
	r.Size = settled(ctx, s, r.Before, letGoTime)
	r.Violations = append(r.Violations, r.Size.excess(r.Before)...)
	for _, slot := range s.Members.Running() {
		r.Violations = append(r.Violations, s.Secrets().Seen("the page of metrics", readText(ctx, slot.Metrics()))...)
	}
	for _, err := range []error{through, s.Members.Scale(0)} {
		if err != nil {
			r.Violations = append(r.Violations, err.Error())
		}
	}
	var err2 error
	r.Recovery, err = recoveries(ctx, s, a.strikes, end, a.apart)
	r.LongestStall, err2 = longestStall(ctx, s, end)
	return errors.Join(err, err2)
}

// count audits what the members have left.
func (a *attack) count(ctx context.Context, s *lab.Site, r *report) (err error) {
	ctx, cancel := context.WithTimeout(ctx, auditTime)
	defer cancel()
	found := slices.Concat(r.Violations, idle(r.Clients))
	if r.Count, err = audit.Run(ctx, s.Ledger()); err != nil {
		return err
	}
	leaks, err := audit.Logs(s.Dir, s.Secrets())
	if err != nil {
		return err
	}
	leaks = slices.DeleteFunc(leaks, func(line string) bool { return hogged(s.Dir, line) })
	r.Violations = append([]string{}, slices.Concat(r.Violations, found, leaks)...) // none is an empty list, not null
	r.Faults, r.Troubles, r.Ends = a.struck, a.troubles, s.Members.Ends()
	return nil
}

// hogged says that a line of a log is the end of a process in which a record allocated without end, as its trace shows.
func hogged(dir, line string) bool {
	name, _, _ := strings.Cut(line, ":")
	if !strings.HasSuffix(line, ": fatal error: out of memory") {
		return false
	}
	trace, err := os.ReadFile(filepath.Join(dir, name))
	return err == nil && bytes.Contains(trace, []byte("/test/attack/member.hog("))
}

// rage is the load, the members and the faults, until it has lasted long enough.
func (a *attack) rage(ctx context.Context, s *lab.Site, watch *watch, r *report) (written map[string]load.Written, err error) {
	l := load.Start(ctx, load.Config{
		Brokers: s.Kafka.Brokers(), Seed: a.seed, Topics: member.Loaded(s.Prefix), Clients: s.Clients, Rate: a.rate,
		Killers: a.scenario.killers, Dir: s.Dir,
	})
	defer func() { written = l.Stop() }()
	if a.scenario.pooled {
		if err := s.UsePooler(); err != nil {
			return nil, err
		}
		s.Members.Configure(func(_ int, c *member.Config) { c.DSN = s.PooledDSN() })
	}
	s.Members.Configure(func(_ int, c *member.Config) { c.Stock = a.scenario.stock })
	if err := s.Members.Scale(2); err != nil {
		return nil, err
	}
	if err := watch.first(ctx, startTime); err != nil {
		return nil, err
	}
	r.Before = largest(ctx, s, calmTime)
	ending, cancel := context.WithTimeout(ctx, a.lasts)
	defer cancel()
	var lanes sync.WaitGroup
	for i, lane := range a.scenario.lanes {
		lanes.Go(func() { a.lane(ending, s, lane, rand.New(rand.NewPCG(a.seed, uint64(1000+i)))) })
	}
	<-ending.Done()
	lanes.Wait()
	return nil, ctx.Err()
}

// rest is the most that lies between two faults of a lane.
const rest = 3 * time.Second

func (a *attack) lane(ctx context.Context, s *lab.Site, lane []faults.Fault, rng *rand.Rand) {
	for ctx.Err() == nil {
		f := lane[rng.IntN(len(lane))]
		own := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())) // what follows does not depend on how much it draws
		pause := time.Duration(rng.Int64N(int64(rest)))
		began := time.Now()
		kills := s.Members.Ends()[killedEnd]
		err := f.Strike(ctx, s, own)
		if f.Name != "consumer-kill" || s.Members.Ends()[killedEnd] > kills { // the slot may have been empty
			a.begin(strike{f.Name, began, time.Now()})
			pause += a.apart
		}
		slog.Info("fault", "name", f.Name, "lasted", time.Since(began).Round(time.Millisecond), "err", err)
		a.note(f.Name, err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// begin notes a SIGKILL.
func (a *attack) begin(k strike) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(killings, k.fault) {
		a.strikes = append(a.strikes, k)
	}
}

func (a *attack) note(name string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.struck[name]++
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		a.troubles = append(a.troubles, fmt.Sprintf("%s: %v", name, err))
	}
}

// drain waits, with two members and nothing broken, until everything is committed and nothing waits in the outbox.
func drain(ctx context.Context, s *lab.Site, patience time.Duration) error {
	if err := s.Members.Scale(2); err != nil {
		return err
	}
	slog.Info("draining")
	began, moved := time.Now(), time.Now()
	var left string
	for time.Since(moved) < patience && time.Since(began) < drainsTime {
		now, err := audit.Left(ctx, s.Ledger())
		if err != nil {
			now = err.Error()
		}
		if now == "" {
			return nil
		}
		if now != left {
			left, moved = now, time.Now()
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("not drained after %s with nothing broken, and nothing moved for %s: %s",
		time.Since(began).Round(time.Second), time.Since(moved).Round(time.Second), left)
}

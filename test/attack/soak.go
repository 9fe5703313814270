package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/test/attack/faults"
	"github.com/headrace/headrace/test/attack/lab"
	"github.com/headrace/headrace/test/attack/load"
	"github.com/headrace/headrace/test/attack/member"
	"github.com/headrace/headrace/test/attack/plot"
)

// soak is a long run at half of what the members can do, to see what grows: a fault and a rebalance a minute, and the inbox
// swept all the time. Two members live as long as it does, a third comes and goes.
type soak struct {
	lab   *lab.Lab
	seed  uint64
	lasts time.Duration
	rate  int    // records a second that are written, 0: half the top rate
	plot  string // file

	site    *lab.Site
	tally   *tally
	top     float64 // records a second
	began   time.Time
	stay    [staying]int // processes of the members that stay
	samples samples
	mu      sync.Mutex
	marks   []plot.Mark
}

const (
	// staying is how many members live as long as the soak. They are in the first slots.
	staying = 2
	// cycle is after what time everything that is done to the members comes round again.
	cycle = time.Minute
	// strikesAt, comesAt and staysFor are of a cycle: the fault is over, as a rule, when the third member comes, which goes when
	// the next cycle begins.
	strikesAt = 15 * time.Second
	comesAt   = 45 * time.Second
	staysFor  = 15 * time.Second
)

// soaking are the faults of a soak: those that leave what is measured its meaning, and no member dead.
var soaking = []string{
	"broker-kill-leader", "broker-kill-coordinator", "broker-pause", "network-latency", "network-reset", "network-lost-replies",
	"database-reset", "database-latency", "postgres-restart", "postgres-kill", "postgres-terminate", "postgres-inbox-locked",
	"postgres-lost-commits", "postgres-statement-timeout",
}

// The inbox must remember for as long as dead letters and their replays are kept, a day each at least. So that rows are old
// enough to be swept before a soak is over, they are that old, but for what the soak is to keep, when they are written.
const (
	remembers  = 72 * time.Hour
	bornOldSQL = `alter table headrace.inbox alter created_at set default now() - interval '%d seconds'`
	// dueSQL has the next process that looks whether the hourly sweep is due find that it is: each new member looks at once.
	dueSQL = `update headrace.consumers set swept_at = null where swept_at < now() - interval '10 seconds'`
)

// retention is what the inbox keeps, but for what waits to be swept.
func (k *soak) retention() time.Duration { return max(time.Minute, k.lasts/10) }

func (k *soak) run(ctx context.Context) (r soakReport, err error) {
	if k.site, err = k.lab.Site(ctx, fmt.Sprintf("soak-%d-%d", k.seed, time.Now().Unix()%100_000)); err != nil {
		return r, err
	}
	defer func() { _ = k.site.Close(ctx) }()
	if err := k.prepare(ctx); err != nil {
		return r, err
	}
	if k.tally, err = startTally(ctx, k.site); err != nil {
		return r, err
	}
	defer k.tally.stop()
	if k.top, err = k.topRate(ctx); err != nil {
		return r, err
	}
	if k.rate == 0 {
		k.rate = int(k.top / 2)
	}
	slog.Info("soak", "top rate", int(k.top), "rate", k.rate, "lasts", k.lasts, "logs", k.site.Dir)
	r = soakReport{Seed: k.seed, Violations: []string{}, Logs: k.site.Dir, TopRate: int(k.top)}
	file, err := os.Create(filepath.Join(k.site.Dir, "samples.jsonl")) // beside the logs
	if err != nil {
		return r, err
	}
	defer func() { _ = file.Close() }()
	r.Faults = k.work(ctx, file)
	r.Seconds = int(time.Since(k.began).Seconds())
	through := drain(ctx, k.site, drainTime)
	r.Violations = append(r.Violations, k.died()...)
	for _, err := range []error{through, k.site.Members.Scale(0)} {
		if err != nil {
			r.Violations = append(r.Violations, err.Error())
		}
	}
	if err := k.ledger(ctx, &r); err != nil {
		return r, err
	}
	r.Ends = k.site.Members.Ends()
	return r, k.judge(&r)
}

// prepare gives topics the shortest lives that they may have.
func (k *soak) prepare(ctx context.Context) error {
	day, minutes, large := "86400000", "600000", "1114124" // of letters: a day, and room for their envelopes
	var names []string
	for name, partitions := range member.Topics(k.site.Prefix) {
		names = append(names, name)
		config := map[string]*string{"retention.ms": &day, "max.message.bytes": &large}
		if _, err := k.site.Admin.CreateTopic(ctx, partitions, -1, config, name+".dlq"); err != nil {
			return err
		}
	}
	changes := []kadm.AlterConfig{{Name: "retention.ms", Value: &minutes}, {Name: "segment.ms", Value: &minutes}}
	altered, err := k.site.Admin.AlterTopicConfigs(ctx, changes, names...)
	for _, a := range altered {
		err = errors.Join(err, a.Err)
	}
	k.site.Members.Configure(func(_ int, c *member.Config) { c.InboxRetention = remembers })
	return errors.Join(err, k.site.Exec(ctx, fmt.Sprintf(bornOldSQL, int((remembers-k.retention()).Seconds()))))
}

// load is of records that nothing is wrong with, or nearly; rate is of all producers together.
func (k *soak) load(ctx context.Context, seed uint64, rate int) *load.Load {
	topics := member.Loaded(k.site.Prefix)
	cfg := load.Config{
		Brokers: k.site.Kafka.Brokers(), Seed: seed, Topics: topics, Clients: k.site.Clients, Tame: true, Steady: true, Dir: k.site.Dir,
	}
	cfg.Rate = max(10, rate/(2*len(topics)+len(cfg.Clients)))
	return load.Start(ctx, cfg)
}

// work is the soak itself.
func (k *soak) work(ctx context.Context, file io.Writer) map[string]int {
	k.began = time.Now()
	for i := range k.stay {
		k.stay[i] = k.site.Members.Slots[i].PID()
	}
	ending, cancel := context.WithTimeout(ctx, k.lasts)
	defer cancel()
	l := k.load(ending, k.seed, k.rate)
	defer l.Stop()
	var wg sync.WaitGroup
	wg.Go(func() { k.sample(ending, file) })
	wg.Go(func() { k.rebalance(ending) })
	wg.Go(func() { k.profiles(ending) })
	struck := k.breakThings(ending)
	wg.Wait()
	return struck
}

// at waits for a moment of a cycle, and says false when the soak is over.
func (k *soak) at(ctx context.Context, n int, moment time.Duration) bool {
	return backoff.Wait(ctx, time.Until(k.began.Add(time.Duration(n)*cycle+moment)))
}

// breakThings is a fault a cycle, each kind before any comes again.
func (k *soak) breakThings(ctx context.Context) map[string]int {
	struck := map[string]int{}
	rng := rand.New(rand.NewPCG(k.seed, 1))
	var line []faults.Fault
	for n := 0; k.at(ctx, n, strikesAt); n++ {
		if len(line) == 0 {
			line = slices.DeleteFunc(sorted(), func(f faults.Fault) bool { return !slices.Contains(soaking, f.Name) })
			rng.Shuffle(len(line), func(i, j int) { line[i], line[j] = line[j], line[i] })
		}
		f := line[0]
		line = line[1:]
		over := k.mark(f.Name, false)
		err := f.Strike(ctx, k.site, rng)
		over()
		slog.Info("fault", "name", f.Name, "err", err)
		struck[f.Name]++
	}
	return struck
}

// rebalance has a third member come in each cycle, and go in order or by SIGKILL.
func (k *soak) rebalance(ctx context.Context) {
	third := k.site.Members.Slots[staying]
	for n := 0; k.at(ctx, n, comesAt); n++ {
		over := k.mark("a third member", true)
		if err := third.Up(); err != nil {
			slog.Error("soak", "err", err)
			return
		}
		backoff.Wait(ctx, staysFor)
		over()
		if n%2 == 0 {
			third.Down()
		} else if err := third.Term(); err != nil {
			slog.Error("soak", "err", err)
		}
	}
}

// mark notes that something begins, for the plot.
func (k *soak) mark(name string, minor bool) (over func()) {
	from := time.Since(k.began).Seconds()
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.marks = append(k.marks, plot.Mark{From: from, To: time.Since(k.began).Seconds(), Name: name, Minor: minor})
	}
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/headrace/headrace/test/attack/audit"
	"github.com/headrace/headrace/test/attack/faults"
	"github.com/headrace/headrace/test/attack/lab"
	"github.com/headrace/headrace/test/attack/load"
	"github.com/headrace/headrace/test/attack/member"
	"github.com/headrace/headrace/test/attack/plot"
)

// soak is a long run at half of what the members can do, to see what grows: a fault and a rebalance a minute, and the inbox
// swept all the time. Two members live as long as it does, others come and go.
type soak struct {
	lab   *lab.Lab
	seed  uint64
	lasts time.Duration
	rate  int    // records a second, 0: half the top rate
	plot  string // file

	site    *lab.Site
	top     float64 // records a second
	began   time.Time
	samples samples
	mu      sync.Mutex
	marks   []plot.Mark
}

// soaking are the faults of a soak: those that leave what is measured its meaning, and no member dead.
var soaking = []string{
	"broker-kill-leader", "broker-kill-coordinator", "broker-pause", "network-latency", "network-reset", "network-lost-replies",
	"database-reset", "database-latency", "postgres-restart", "postgres-kill", "postgres-terminate", "postgres-inbox-locked",
	"postgres-lost-commits", "postgres-statement-timeout",
}

// soakReport is its line.
type soakReport struct {
	Seed       uint64                `json:"seed"`
	Seconds    int                   `json:"seconds"`
	TopRate    int                   `json:"top_rate"`
	Rate       int                   `json:"rate"` // measured
	Records    int64                 `json:"records"`
	Effects    int64                 `json:"effects"`
	Faults     map[string]int        `json:"faults"`
	Ends       map[string]int        `json:"ends"`
	Trends     map[string]plot.Trend `json:"trends"`
	Violations []string              `json:"violations"`
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
	tally, err := startTally(ctx, k.site)
	if err != nil {
		return r, err
	}
	defer tally.stop()
	if k.top, err = k.topRate(ctx); err != nil {
		return r, err
	}
	if k.rate == 0 {
		k.rate = int(k.top / 2)
	}
	slog.Info("soak", "top rate", int(k.top), "rate", k.rate, "lasts", k.lasts, "logs", k.site.Dir)
	struck := k.work(ctx)
	through := drain(ctx, k.site)
	r = soakReport{Seed: k.seed, Seconds: int(time.Since(k.began).Seconds()), TopRate: int(k.top), Faults: struck, Violations: []string{}}
	stopped := k.site.Members.Scale(0)
	for _, err := range []error{through, stopped} {
		if err != nil {
			r.Violations = append(r.Violations, err.Error())
		}
	}
	if err := k.ledger(ctx, tally, &r); err != nil {
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

// topTime is for how long a backlog is written.
const topTime = 10 * time.Second

// backlogRate is how fast, at most.
const backlogRate = 5000

// topRate writes a backlog and has it read: records a second until all routes are done with all of it.
func (k *soak) topRate(ctx context.Context) (float64, error) {
	l := k.load(ctx, k.seed+1, backlogRate) // a seed of its own: the same ids again would be duplicates
	pause(ctx, topTime)
	var n int64
	for _, w := range l.Stop() {
		n += w.Records
	}
	if err := k.site.Members.Scale(2); err != nil {
		return 0, err
	}
	var seconds float64
	if err := drain(ctx, k.site); err != nil {
		return 0, err
	}
	err := ask(ctx, k.site, `select extract(epoch from max(at) - min(at))::float8 from effects`, nil, &seconds)
	return float64(n) / max(seconds, 1), err
}

// load is of records that nothing is wrong with, or nearly; rate is of all producers together.
func (k *soak) load(ctx context.Context, seed uint64, rate int) *load.Load {
	topics := member.Loaded(k.site.Prefix)
	cfg := load.Config{
		Brokers: k.site.Kafka.Brokers(), Seed: seed, Topics: topics, Clients: k.site.Clients, Tame: true, Dir: k.site.Dir,
	}
	cfg.Rate = max(10, rate/(2*len(topics)+len(cfg.Clients)))
	return load.Start(ctx, cfg)
}

// work is the soak itself.
func (k *soak) work(ctx context.Context) map[string]int {
	k.began = time.Now()
	ending, cancel := context.WithTimeout(ctx, k.lasts)
	defer cancel()
	l := k.load(ending, k.seed, k.rate)
	defer l.Stop()
	var wg sync.WaitGroup
	wg.Go(func() { k.sample(ending) })
	wg.Go(func() { k.rebalance(ending) })
	struck := k.breakThings(ending)
	wg.Wait()
	return struck
}

// breakThings is a fault a minute, each kind before any comes again.
func (k *soak) breakThings(ctx context.Context) map[string]int {
	struck := map[string]int{}
	rng := rand.New(rand.NewPCG(k.seed, 1))
	var line []faults.Fault
	for n := range int(k.lasts.Minutes()) {
		if !pause(ctx, time.Until(k.began.Add(time.Duration(n)*time.Minute+20*time.Second))) {
			break
		}
		if len(line) == 0 {
			line = slices.DeleteFunc(sorted(), func(f faults.Fault) bool { return !slices.Contains(soaking, f.Name) })
			rng.Shuffle(len(line), func(i, j int) { line[i], line[j] = line[j], line[i] })
		}
		f := line[0]
		line = line[1:]
		k.mark(f.Name, false)
		err := f.Strike(ctx, k.site, rng)
		slog.Info("fault", "name", f.Name, "err", err)
		struck[f.Name]++
	}
	return struck
}

// rebalance has a third member come, and go in order or by SIGKILL.
func (k *soak) rebalance(ctx context.Context) {
	third := k.site.Members.Slots[2]
	for n := 0; pause(ctx, 45*time.Second); n++ {
		k.mark("a third member comes", true)
		if err := third.Up(); err != nil {
			slog.Error("soak", "err", err)
			return
		}
		if pause(ctx, 15*time.Second) {
			k.mark("the third member goes", true)
		}
		if n%2 == 0 {
			third.Down()
		} else if err := third.Term(); err != nil {
			slog.Error("soak", "err", err)
		}
	}
}

func (k *soak) mark(name string, minor bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.marks = append(k.marks, plot.Mark{At: time.Since(k.began).Seconds(), Name: name, Minor: minor})
}

// judge writes the plot, and complains of what rises.
func (k *soak) judge(r *soakReport) error {
	r.Trends = map[string]plot.Trend{}
	all := k.samples.series(k.lasts, k.retention())
	for _, s := range all {
		r.Trends[s.Name] = s.Trend
		if !s.Trend.Flat {
			r.Violations = append(r.Violations, fmt.Sprintf("%s rose by %.1f from about %.1f", s.Name, s.Trend.Rise, s.Trend.Level))
		}
	}
	file, err := os.Create(k.plot)
	if err != nil {
		return err
	}
	title := fmt.Sprintf("Headrace, %d minutes at %d records a second (%d routes' work; %d %% of the top rate of the same run)",
		int(k.lasts.Minutes()), r.Rate, len(member.Audited("")), int(100*float64(r.Rate)/cmp.Or(k.top, 1)))
	return errors.Join(plot.SVG(file, title, all, k.marks), file.Close())
}

// ledger: each record once for each route.
func (k *soak) ledger(ctx context.Context, t *tally, r *soakReport) error {
	records, err := t.end(ctx)
	if err != nil {
		return err
	}
	for _, route := range member.Audited(k.site.Prefix) {
		var effects, places int64
		const question = `select count(*), count(distinct (topic, part, off)) from effects where route = $1 and topic = $2`
		if err := ask(ctx, k.site, question, []any{route.Name, route.Topic}, &effects, &places); err != nil {
			return err
		}
		should := records[origin(route, k.site.Prefix)].effects
		if effects != should || places != should {
			r.Violations = append(r.Violations, fmt.Sprintf("route %s: %d effects of %d records, and %d should have one", route.Name, effects, places, should))
		}
		r.Effects += effects
	}
	for _, topic := range member.Loaded(k.site.Prefix) {
		r.Records += records[topic].all
	}
	var seconds float64
	var during int64
	err = ask(ctx, k.site, `select count(distinct (topic, part, off)), extract(epoch from max(made) - min(made))::float8 from effects
		where made between $1 and $2 and topic = any($3)`, []any{k.began, k.began.Add(k.lasts), member.Loaded(k.site.Prefix)}, &during, &seconds)
	r.Rate = int(float64(during) / max(seconds, 1))
	leaks, err2 := audit.Logs(k.site.Dir, k.site.Secrets())
	r.Violations = append(r.Violations, leaks...)
	return errors.Join(err, err2)
}

// origin is the topic whose records a route has effects of, each once: events may be in theirs twice.
func origin(route audit.Route, prefix string) string {
	for _, other := range member.Audited(prefix) {
		if other.Publishes == route.Topic {
			return other.Topic
		}
	}
	return route.Topic
}

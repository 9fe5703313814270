package main

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/headrace/headrace/test/attack/plot"
)

// sample is what there is at a moment.
type sample struct {
	At   float64 `json:"at"` // seconds
	Size size    `json:"size"`
	// Rows are the inbox's.
	Rows float64 `json:"rows"`
	// P99 is in ms, of the effects since the sample before; negative if there were none.
	P99     float64 `json:"p99"`
	Effects float64 `json:"effects"` // a second
}

type samples []sample

// sampleEvery is between two of them.
const sampleEvery = 5 * time.Second

const (
	rowsSQL   = `select count(*)::float8 from headrace.inbox`
	recentSQL = `select coalesce(max(seq), 0), count(*)::float8,
		coalesce(percentile_disc(0.99) within group (order by extract(epoch from at - made)), -0.001)::float8 * 1000
		from effects where seq > $1`
)

// sample looks at the members that stay, and at the database. While that is away, or a member does not answer, there is none.
// Each is a line of file as soon as it is taken: a soak that is ended has something to show, too.
func (k *soak) sample(ctx context.Context, file io.Writer) {
	var seq int64
	lines := json.NewEncoder(file)
	_ = ask(ctx, k.site, `select coalesce(max(seq), 0) from effects`, nil, &seq) // 0 is all
	last := time.Now()
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		_ = k.site.Exec(ctx, dueSQL) // the server may be away
		now, answers := sample{At: time.Since(k.began).Seconds()}, 0
		now.Size, answers = sizes(ctx, k.site, k.staying())
		var next int64
		if err := ask(ctx, k.site, rowsSQL, nil, &now.Rows); err != nil {
			continue
		}
		if err := ask(ctx, k.site, recentSQL, []any{seq}, &next, &now.Effects, &now.P99); err != nil {
			continue
		}
		now.Effects /= time.Since(last).Seconds()
		seq, last = max(seq, next), time.Now()
		if answers == staying && now.Size.Sessions > 0 {
			k.samples = append(k.samples, now)
			_ = lines.Encode(now)
		}
	}
}

// quantity is a panel.
type quantity struct {
	name, unit string
	log        bool
	of         func(sample) float64
	// bound is the rise that matters, nil for what is only shown.
	bound *plot.Bound
}

// Of an hour three quarters are judged. What grows once a cycle, by a goroutine, a connection, a session or a MiB that is not
// given back, has grown by 45 then, which is to be found: so a third of that is what matters.
var leak = &plot.Bound{Least: 15}

var quantities = []quantity{
	{"resident memory", "MiB", false, func(s sample) float64 { return float64(s.Size.MiB) }, leak},
	{"live heap", "MiB", false, func(s sample) float64 { return s.Size.Live }, leak},
	{"goroutines", "", false, func(s sample) float64 { return float64(s.Size.Goroutines) }, leak},
	{"connections", "", false, func(s sample) float64 { return float64(s.Size.Sockets) }, leak},
	{"sessions in Postgres", "", false, func(s sample) float64 { return float64(s.Size.Sessions) }, leak},
	// How many rows a retention has follows the load; a sweep that does not keep up leaves a cycle's more each cycle, which
	// doubles them within one retention.
	{"rows of the inbox", "", false, func(s sample) float64 { return s.Rows }, &plot.Bound{Least: 1000, Share: 0.25}},
	// What takes twice as long at the end as at the beginning rises by nearly half of its level within the three quarters.
	{"p99 from written to effect", "ms", true, func(s sample) float64 { return s.P99 }, &plot.Bound{Least: 50, Share: 0.3}},
	{"effects a second", "", false, func(s sample) float64 { return s.Effects }, nil},
}

// panels are judged from a quarter on, and from twice the time that the inbox needs to fill.
func (ss samples) panels(lasts, retention time.Duration) (all []plot.Series) {
	from := max(lasts/4, 2*retention).Seconds()
	for _, q := range quantities {
		series := plot.Series{Name: q.name, Unit: q.unit, Log: q.log}
		for _, s := range ss {
			if v := q.of(s); v >= 0 {
				series.Samples = append(series.Samples, plot.Point{T: s.At, V: v})
			}
		}
		if q.bound != nil {
			series.Judge(from, cycle.Seconds(), *q.bound)
		}
		all = append(all, series)
	}
	return all
}

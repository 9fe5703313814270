package main

import (
	"context"
	"time"

	"github.com/headrace/headrace/test/attack/plot"
)

// sample is what there is at a moment.
type sample struct {
	at      float64 // seconds
	size    size
	rows    float64 // of the inbox
	p99     float64 // ms, of the effects since the sample before; negative if there were none
	effects float64 // a second
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

// sample looks at the two members that stay.
func (k *soak) sample(ctx context.Context) {
	var seq int64
	_ = ask(ctx, k.site, `select coalesce(max(seq), 0) from effects`, nil, &seq) // 0 is all
	last := time.Now()
	for pause(ctx, sampleEvery) {
		_ = k.site.Exec(ctx, dueSQL) // the server may be away
		now := sample{at: time.Since(k.began).Seconds(), size: sizes(ctx, k.site)}
		var next int64
		if err := ask(ctx, k.site, rowsSQL, nil, &now.rows); err != nil {
			continue
		}
		if err := ask(ctx, k.site, recentSQL, []any{seq}, &next, &now.effects, &now.p99); err != nil {
			continue
		}
		now.effects /= time.Since(last).Seconds()
		seq, last = max(seq, next), time.Now()
		k.samples = append(k.samples, now)
	}
}

// series are the panels. Trends begin after a quarter, and after twice the time that the inbox needs to fill.
func (ss samples) series(lasts, retention time.Duration) (all []plot.Series) {
	from := max(lasts/4, 2*retention).Seconds()
	for _, p := range []struct {
		name, unit string
		least      float64 // a rise that does not matter
		of         func(sample) float64
	}{
		{"resident memory of the larger member", "MiB", 8, func(s sample) float64 { return float64(s.size.MiB) }},
		{"goroutines", "", 15, func(s sample) float64 { return float64(s.size.Goroutines) }},
		{"connections of the larger member", "", 5, func(s sample) float64 { return float64(s.size.Sockets) }},
		{"sessions in Postgres", "", 5, func(s sample) float64 { return float64(s.size.Sessions) }},
		{"rows of the inbox", "", 1000, func(s sample) float64 { return s.rows }},
		{"p99, from written to effect", "ms", 50, func(s sample) float64 { return s.p99 }},
		{"effects a second", "", 50, func(s sample) float64 { return s.effects }},
	} {
		series := plot.Series{Name: p.name, Unit: p.unit, From: from}
		var t, y []float64
		for _, s := range ss {
			v := p.of(s)
			if v < 0 {
				continue
			}
			series.T, series.Y = append(series.T, s.at), append(series.Y, v)
			if s.at > from {
				t, y = append(t, s.at), append(y, v)
			}
		}
		series.Trend = plot.TrendOf(t, y, p.least)
		all = append(all, series)
	}
	return all
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/headrace/headrace/test/attack/audit"
	"github.com/headrace/headrace/test/attack/member"
	"github.com/headrace/headrace/test/attack/plot"
)

// soakReport is its line.
type soakReport struct {
	Seed    uint64 `json:"seed"`
	Seconds int    `json:"seconds"`
	// Rates are of a second. TopRate is the members' with a backlog before them and nobody writing beside them.
	TopRate    int                   `json:"top_rate"`
	Rate       int                   `json:"rate"`
	EffectRate int                   `json:"effect_rate"`
	Records    int64                 `json:"records"`
	Effects    int64                 `json:"effects"`
	Faults     map[string]int        `json:"faults"`
	Ends       map[string]int        `json:"ends"`
	Trends     map[string]plot.Trend `json:"trends"`
	Violations []string              `json:"violations"`
	// Logs are the members', with their profiles, and the samples.
	Logs string `json:"logs"`
}

// judge writes the plot, and complains of what is not flat.
func (k *soak) judge(r *soakReport) error {
	r.Trends = map[string]plot.Trend{}
	panels := k.samples.panels(k.lasts, k.retention())
	for _, s := range panels {
		if s.Trend == nil {
			continue
		}
		r.Trends[s.Name] = *s.Trend
		if t := *s.Trend; t.Verdict != plot.Flat {
			r.Violations = append(r.Violations, fmt.Sprintf("%s is not shown to be flat: %s, by %.1f (between %.1f and %.1f) from about %.1f in %d cycles",
				s.Name, t.Verdict, t.Rise, t.Least, t.Most, t.Level, t.Cycles))
		}
	}
	file, err := os.Create(k.plot)
	if err != nil {
		return err
	}
	return errors.Join(k.figure(*r, panels).SVG(file), file.Close())
}

func (k *soak) figure(r soakReport, panels []plot.Series) plot.Figure {
	return plot.Figure{
		Title: fmt.Sprintf("Headrace, %.0f minutes at %d records and %d effects a second, %d %% of the top rate",
			k.lasts.Minutes(), r.Rate, r.EffectRate, 100*r.Rate/max(1, r.TopRate)),
		Notes: []string{
			"Red: a fault. Grey: a third member. Dots: the calm quarter of a minute's samples, by which a series is judged.",
			"Memory, goroutines and connections are those of the larger of the two members that stay, a sample each 5 s.",
		},
		Series: panels, Marks: k.marks,
	}
}

// ledger: each record once for each route.
func (k *soak) ledger(ctx context.Context, r *soakReport) error {
	records, err := k.tally.end(ctx)
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
	err = k.rates(ctx, r)
	leaks, err2 := audit.Logs(k.site.Dir, k.site.Secrets())
	r.Violations = append(r.Violations, leaks...)
	return errors.Join(err, err2)
}

// rates are those of the soak itself, without the backlog before it.
func (k *soak) rates(ctx context.Context, r *soakReport) error {
	const question = `select count(distinct (topic, part, off)) filter (where topic = any($3)), count(*) from effects where at between $1 and $2`
	var records, effects float64
	end := k.began.Add(k.lasts)
	err := ask(ctx, k.site, question, []any{k.began, end, member.Loaded(k.site.Prefix)}, &records, &effects)
	r.Rate, r.EffectRate = int(records/end.Sub(k.began).Seconds()), int(effects/end.Sub(k.began).Seconds())
	return err
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

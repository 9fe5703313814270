package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/headrace/headrace/bench/internal/child"
	"github.com/headrace/headrace/bench/internal/load"
	"github.com/headrace/headrace/bench/internal/result"
)

// trial is one question to a field of contenders.
type trial struct {
	scenario string
	shape    load.Shape
	field    []contender
	rounds   int
	service  *service // called for each record; nil: none
}

// race lets the contenders take turns, and keeps each one's medians. A contender that fails is out, and said so; the
// others go on.
func (b *bench) race(ctx context.Context, t trial) error {
	topics := map[load.Shape]*load.Topic{}
	runs := make([][]result.Run, len(t.field))
	out := make([]error, len(t.field))
	sizes := make([]int, len(t.field))
	for round := range t.rounds {
		for i, c := range t.field {
			if out[i] != nil || !b.takesPart(c) {
				continue
			}
			topic, err := b.topicOf(ctx, topics, t.shape, c)
			if err != nil {
				return err
			}
			sizes[i] = topic.Records
			run, err := b.once(ctx, topic, c, t.service)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			b.progress(t, round, c, run, err)
			runs[i], out[i] = append(runs[i], run), err
		}
	}
	for i, c := range t.field {
		switch {
		case out[i] != nil:
			b.results = append(b.results, result.Failed(t.scenario, c.name, t.shape.Partitions, sizes[i], out[i]))
		case len(runs[i]) > 0:
			b.results = append(b.results, result.Of(t.scenario, c.name, t.shape.Partitions, sizes[i], runs[i]))
		}
	}
	return nil
}

func (b *bench) takesPart(c contender) bool {
	return b.joins(c.name) && (c.jvm == "" || b.jvm.usable())
}

// topicOf fills a topic of the contender's shape, once a race.
func (b *bench) topicOf(ctx context.Context, topics map[load.Shape]*load.Topic, shape load.Shape, c contender) (*load.Topic, error) {
	if c.change != nil {
		c.change(&shape)
	}
	if t := topics[shape]; t != nil {
		return t, nil
	}
	t, err := load.Fill(ctx, b.brokers, shape)
	topics[shape] = t
	return t, err
}

func (b *bench) progress(t trial, round int, c contender, run result.Run, err error) {
	said := fmt.Sprintf("%8.0f/s   cpu %6.2f s/100k   rss %4.0f MB", run.Rate, run.CPUPer100k, run.PeakMB)
	if err != nil {
		said = "FAILED: " + err.Error()
	}
	fmt.Printf("  %2d partitions, round %d of %d: %-36s %s\n", t.shape.Partitions, round+1, t.rounds, c.name, said)
}

// spec is what a child of the contender is told.
func (b *bench) spec(topic *load.Topic, c contender) child.Spec {
	spec := child.Spec{
		Bootstrap: b.bootstrap(), DSN: b.dsn, JDBC: b.jdbc, Topic: topic.Name, Group: cmp.Or(b.inbox.group, fmt.Sprintf("bench-%d", time.Now().UnixNano())),
		Partitions: topic.Partitions, Records: topic.Records, Mode: c.mode, Options: c.options,
	}
	if b.profile != "" && c.jvm == "" {
		name := strings.ReplaceAll(fmt.Sprintf("%s-%d.pprof", c.name, topic.Partitions), "/", "-")
		spec.Options.Profile = filepath.Join(b.profile, name)
	}
	return spec
}

// launch starts the contender's child.
func (b *bench) launch(c contender, spec child.Spec) (*child.Process, error) {
	argv := []string{b.self}
	if c.jvm != "" {
		argv = b.jvm.command(c.jvm)
	}
	return child.Start(argv, spec)
}

// once measures one run, from the first record's handler to the last effect, and verifies it.
func (b *bench) once(ctx context.Context, topic *load.Topic, c contender, svc *service) (run result.Run, err error) {
	if c.silent {
		svc = nil
	}
	if err := errors.Join(b.reset(ctx, topic), svc.forget(ctx)); err != nil {
		return run, err
	}
	spec := b.spec(topic, c)
	spec.Options.URL = svc.address()
	p, err := b.launch(c, spec)
	if err != nil {
		return run, err
	}
	defer p.Kill()
	if err := p.Ready(ctx); err != nil {
		return run, err
	}
	f := newFinish(b, p, topic, c.books)
	first, before, err := f.begin(ctx)
	if err != nil {
		return run, err
	}
	if err := f.wait(ctx); err != nil {
		return run, err
	}
	end := time.Now()
	after, err := p.Usage()
	if err != nil {
		return run, err
	}
	seconds := end.Sub(first).Seconds()
	figures, err := p.Stop()
	if err := errors.Join(err, load.Verify(ctx, b.db, topic, c.books), svc.verify(ctx, topic.Records)); err != nil {
		return run, err
	}
	if c.books == load.Nothing {
		seconds = figures.Seconds
	}
	n := float64(topic.Records)
	return result.Run{
		Rate: n / seconds, CPUPer100k: (after.CPU - before.CPU).Seconds() / n * 100_000, PeakMB: after.PeakMB,
		Allocs: float64(figures.Allocs) / n,
	}, nil
}

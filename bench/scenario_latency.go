package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/bench/internal/child"
	"github.com/headrace/headrace/bench/internal/load"
	"github.com/headrace/headrace/bench/internal/result"
)

const (
	// lowRate is records a second when every record is alone.
	lowRate = 20
	// warmUp records join the group, open the connections and fill the caches; they are not counted.
	warmUp = 200
)

// latency is the time from when a record was due to be produced to its committed effect, as the consumer hears of it. The
// producer is an open loop: it sends on time whatever becomes of the records, so a stall is in the figures of all that
// were due meanwhile.
func latency(ctx context.Context, b *bench) error {
	shape := b.shape(8)
	top := trial{scenario: "latency-top", shape: shape, field: routes("inbox"), rounds: 1}
	if err := b.race(ctx, top); err != nil {
		return err
	}
	for _, percent := range []int{10, 50, 90} {
		err := b.loads(ctx, fmt.Sprintf("latency-%d", percent), top.field, func(c contender) float64 {
			r, _ := result.Best(b.results, "latency-top", shape.Partitions, func(name string) bool { return name == c.name })
			return r.Rate * float64(percent) / 100
		})
		if err != nil {
			return err
		}
	}
	low := append([]contender{stock()}, others()...)
	low = append(low, routes("inbox")...)
	return b.loads(ctx, "latency-low", low, func(contender) float64 { return lowRate })
}

// loads lets the contenders take turns under a load of their own.
func (b *bench) loads(ctx context.Context, scenario string, field []contender, rate func(contender) float64) error {
	runs, out := make([][]result.Run, len(field)), make([]error, len(field))
	for round := range b.rounds {
		for i, c := range field {
			if out[i] != nil || !b.takesPart(c) || rate(c) == 0 {
				continue
			}
			run, err := b.underLoad(ctx, c, rate(c))
			if ctx.Err() != nil {
				return ctx.Err()
			}
			b.sayLoad(scenario, round, c, run, err)
			runs[i], out[i] = append(runs[i], run), err
		}
	}
	for i, c := range field {
		switch {
		case out[i] != nil:
			b.results = append(b.results, result.Failed(scenario, c.name, 8, 0, out[i]))
		case len(runs[i]) > 0:
			b.results = append(b.results, result.Of(scenario, c.name, 8, int(rate(c)*b.load.Seconds()), runs[i]))
		}
	}
	return nil
}

func (b *bench) sayLoad(scenario string, round int, c contender, run result.Run, err error) {
	said := fmt.Sprintf("at %6.0f/s p50 %7.2f ms, p99 %7.2f ms, p99.9 %7.2f ms", run.Rate, run.P50, run.P99, run.P999)
	if err != nil {
		said = "FAILED: " + err.Error()
	}
	fmt.Printf("  %s, round %d of %d: %-36s %s\n", scenario, round+1, b.rounds, c.name, said)
}

// underLoad is one run under an open loop.
func (b *bench) underLoad(ctx context.Context, c contender, rate float64) (run result.Run, err error) {
	topic, err := load.Create(ctx, b.brokers, b.shape(8))
	if err != nil {
		return run, err
	}
	if err := b.reset(ctx, topic); err != nil {
		return run, err
	}
	c.options.Latency = true
	p, err := b.launch(c, b.spec(topic, c))
	if err != nil {
		return run, err
	}
	defer p.Kill()
	if err := p.Ready(ctx); err != nil {
		return run, err
	}
	loop, err := newOpenLoop(b.brokers, topic)
	if err != nil {
		return run, err
	}
	defer loop.close()
	for range warmUp {
		loop.produce(ctx, 0)
	}
	if err := errors.Join(loop.flush(ctx), newFinish(b, p, topic, c.books).wait(ctx)); err != nil {
		return run, err
	}
	before, err := p.Usage()
	if err != nil {
		return run, err
	}
	loop.run(ctx, rate, b.load)
	f := newFinish(b, p, topic, c.books)
	if err := errors.Join(loop.flush(ctx), f.wait(ctx), f.told(ctx, topic.Fresh-warmUp)); err != nil {
		return run, err
	}
	after, err := p.Usage()
	if err != nil {
		return run, err
	}
	figures, err := p.Stop()
	if err := errors.Join(err, load.Verify(ctx, b.db, topic, c.books)); err != nil {
		return run, err
	}
	return loadRun(figures, topic.Fresh-warmUp, rate, before, after)
}

func loadRun(f child.Figures, records int, rate float64, before, after child.Usage) (result.Run, error) {
	l := f.Latencies
	if l == nil || l.Records != records {
		return result.Run{}, fmt.Errorf("the child's latencies are not of all %d records: %+v", records, l)
	}
	return result.Run{
		Rate: rate, P50: l.P50, P99: l.P99, P999: l.P999, PeakMB: after.PeakMB,
		CPUPer100k: (after.CPU - before.CPU).Seconds() / float64(records) * 100_000,
	}, nil
}

// openLoop produces on time.
type openLoop struct {
	cl     *kgo.Client
	topic  *load.Topic
	failed atomic.Pointer[error]
}

func newOpenLoop(brokers []string, topic *load.Topic) (*openLoop, error) {
	// Lingering would be part of every latency.
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0))
	return &openLoop{cl: cl, topic: topic}, err
}

func (o *openLoop) close() { o.cl.Close() }

// run produces for so long; several records that fall due within a millisecond go together.
func (o *openLoop) run(ctx context.Context, rate float64, lasts time.Duration) {
	began := time.Now()
	due := func(i int) time.Duration { return time.Duration(float64(i) / rate * float64(time.Second)) }
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := 0; due(i) < lasts; i++ {
		if wait := due(i) - time.Since(began); wait > time.Millisecond {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
		}
		o.produce(ctx, began.Add(due(i)).UnixNano())
	}
}

func (o *openLoop) produce(ctx context.Context, due int64) {
	account := rand.IntN(o.topic.Keys)
	p := load.Posting{Account: account, Amount: 1, Due: due}
	o.topic.Balances[account]++
	o.topic.Fresh++
	o.topic.Records = o.topic.Fresh
	o.cl.Produce(ctx, o.topic.Record(p, account), func(_ *kgo.Record, err error) {
		if err != nil {
			o.failed.Store(&err)
		}
	})
}

func (o *openLoop) flush(ctx context.Context) error {
	if err := o.cl.Flush(ctx); err != nil {
		return err
	}
	if err := o.failed.Load(); err != nil {
		return *err
	}
	return nil
}

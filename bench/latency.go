package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// latency is the time from produce to the committed effect at low load, as a consumer that watches the table sees it.
// It returns the median.
func latency(ctx context.Context, e env, c contender, records int, every time.Duration) (time.Duration, error) {
	w, err := produce(ctx, e.brokers, workload{partitions: 1, keys: 100}, 0)
	if err != nil {
		return 0, err
	}
	if err := reset(ctx, e.db, w.keys); err != nil {
		return 0, err
	}
	if err := forget(ctx, e.db); err != nil {
		return 0, err
	}
	seen := &clock{}
	stop, err := c.start(e, w, fmt.Sprintf("bench-%d", time.Now().UnixNano()), seen)
	if err != nil {
		return 0, err
	}
	defer stop()
	cl, err := kgo.NewClient(kgo.SeedBrokers(e.brokers...))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	var times []time.Duration
	tick := time.NewTicker(every)
	defer tick.Stop()
	for i := range records + warmup {
		<-tick.C
		took, err := roundTrip(ctx, e, cl, w.topic, i%w.keys)
		if err != nil {
			return 0, err
		}
		if i >= warmup {
			times = append(times, took)
		}
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// warmup records join the group, open the connections and fill the caches; they are not counted.
const warmup = 20

// roundTrip produces one posting and watches its account until the effect is committed.
func roundTrip(ctx context.Context, e env, cl *kgo.Client, topic string, account int) (time.Duration, error) {
	var before int64
	const balance = `select balance from accounts where id = $1`
	if err := e.db.QueryRow(ctx, balance, account).Scan(&before); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cl.ProduceSync(ctx, posting{Account: account, Amount: 1, Pad: pad}.record(topic)).FirstErr(); err != nil {
		return 0, err
	}
	for {
		var now int64
		if err := e.db.QueryRow(ctx, balance, account).Scan(&now); err != nil {
			return 0, err
		}
		if now > before {
			return time.Since(began), nil
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
}

// turns measures the contenders' latency in turn and returns each one's median of medians.
func turns(ctx context.Context, e env, rounds, records int, every time.Duration, contenders ...contender) (map[string]time.Duration, error) {
	all := map[string][]time.Duration{}
	for range rounds {
		for _, c := range contenders {
			d, err := latency(ctx, e, c, records, every)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name(), err)
			}
			fmt.Printf("  low load: %-28s p50 %8s\n", c.name(), d.Round(10*time.Microsecond))
			all[c.name()] = append(all[c.name()], d)
		}
	}
	out := map[string]time.Duration{}
	for name, ds := range all {
		slices.Sort(ds)
		out[name] = ds[len(ds)/2]
	}
	return out, nil
}

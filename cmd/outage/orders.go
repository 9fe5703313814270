package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/internal/payments"
	"github.com/headrace/headrace/kafka"
)

// idHeader is where an order's identity travels.
const idHeader = "order-id"

// accounts is how many keys there are.
const accounts = 500

// orderID is the n-th order's.
func orderID(topic string, n int) string { return fmt.Sprintf("%s-%d", topic, n) }

// broke says that an order's account has no funds: one of 100, which die of that and of nothing else.
func broke(seed uint64, order string) bool {
	h := fnv.New64a()
	_, _ = h.Write([]byte(order)) // a hash takes everything
	return rand.New(rand.NewPCG(seed, h.Sum64())).IntN(100) == 0
}

// producer sends orders at a steady rate.
type producer struct {
	client *kgo.Client
	topic  string
	rng    *rand.Rand
	rate   int
	sent   int
}

func newProducer(client kafka.ClientConfig, s settings, topic string) (*producer, error) {
	c, err := kgo.NewClient(append(client.Options(), kgo.DefaultProduceTopic(topic))...)
	if err != nil {
		return nil, err
	}
	return &producer{client: c, topic: topic, rng: rand.New(rand.NewPCG(s.seed, s.seed)), rate: s.rate}, nil
}

// run sends until stop is closed.
func (p *producer) run(ctx context.Context, stop <-chan struct{}) error {
	defer p.client.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; {
		select {
		case <-stop:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		due := int(time.Since(began).Seconds() * float64(p.rate))
		if err := p.send(ctx, due-p.sent); err != nil {
			return err
		}
	}
}

func (p *producer) send(ctx context.Context, n int) error {
	records := make([]*kgo.Record, 0, n)
	for range n {
		p.sent++
		o := payments.Request{
			Order: orderID(p.topic, p.sent), Account: p.rng.IntN(accounts), Amount: 1 + p.rng.Int64N(10_000),
		}
		value, err := json.Marshal(o)
		if err != nil {
			return err
		}
		records = append(records, &kgo.Record{
			Key: []byte(strconv.Itoa(o.Account)), Value: value, Headers: []kgo.RecordHeader{{Key: idHeader, Value: []byte(o.Order)}},
		})
	}
	if err := p.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("produce to %s: %w", p.topic, err)
	}
	return nil
}

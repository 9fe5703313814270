package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/kafka"
)

// idHeader is where an order's identity travels, so that even one with undecodable bytes has one.
const idHeader = "order-id"

// accounts is how many accounts there are. An account is an order's key: its orders stay in order.
const accounts = 1000

// order is what a record of the topic says: charge Amount cents, and post them to Account.
type order struct {
	ID      string `json:"id"`
	Account int    `json:"account"`
	Amount  int64  `json:"amount"`
	// Kind is what goes wrong with it, known in advance so that the ledger can be checked against it.
	Kind kind `json:"kind"`
}

// wire is a record to produce.
type wire struct {
	id    string
	key   string
	value []byte
}

// mill makes the orders of a seed: the same seed, the same orders.
type mill struct {
	seed uint64
	rng  *rand.Rand
	sent []wire // the last ones, for producer duplicates
	once bool   // it sends nothing twice
}

func newMill(seed uint64) *mill { return &mill{seed: seed, rng: rand.New(rand.NewPCG(seed, seed))} }

// recent is how far back a producer's duplicate repeats.
const recent = 500

// next makes a record: mostly a new order, sometimes an earlier one once more, sometimes its identity with other
// bytes, sometimes bytes that are no order at all. For a store that knows no identities, nothing comes twice.
func (m *mill) next() wire {
	switch n := m.rng.IntN(1000); {
	case m.once:
	case n < 20 && len(m.sent) > 0:
		return m.earlier()
	case n < 21 && len(m.sent) > 0:
		w := m.earlier()
		w.value = append([]byte("\n"), w.value...) // the same JSON, but other bytes
		return w
	}
	w, k := m.fresh()
	if k != garbled { // with other bytes it would be undecodable and a conflict, and both reasons right
		m.remember(w)
	}
	return w
}

func (m *mill) earlier() wire { return m.sent[m.rng.IntN(len(m.sent))] }

func (m *mill) remember(w wire) {
	if len(m.sent) < recent {
		m.sent = append(m.sent, w)
		return
	}
	m.sent[m.rng.IntN(recent)] = w
}

func (m *mill) fresh() (wire, kind) {
	o := order{ID: m.id(), Account: m.rng.IntN(accounts), Amount: 1 + m.rng.Int64N(10_000)}
	o.Kind = kindOf(m.seed, o.ID)
	value, err := json.Marshal(o)
	if err != nil {
		panic(err) // an order holds nothing that JSON has no form for
	}
	if o.Kind == garbled {
		value = value[:len(value)/2]
	}
	return wire{id: o.ID, key: strconv.Itoa(o.Account), value: value}, o.Kind
}

func (m *mill) id() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], m.rng.Uint64())
	binary.BigEndian.PutUint64(b[8:], m.rng.Uint64())
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return uuid.UUID(b).String()
}

// producer sends the orders: the first half at once, a backlog, the other half spread over `pace`, so that outages
// and rebalance happen amid traffic.
type producer struct {
	client *kgo.Client
	topic  string
	mill   *mill
}

func newProducer(client kafka.ClientConfig, s settings) (*producer, error) {
	c, err := kgo.NewClient(append(client.Options(), kgo.DefaultProduceTopic(s.topic))...)
	if err != nil {
		return nil, err
	}
	p := &producer{client: c, topic: s.topic, mill: newMill(s.seed)}
	p.mill.once = s.byOffset()
	return p, nil
}

// bursts is in how many bursts the second half comes.
const bursts = 50

// run produces n orders; sent hears how many there are after each burst.
func (p *producer) run(ctx context.Context, n int, pace time.Duration, sent func(int)) error {
	defer p.client.Close()
	done := n / 2
	if err := p.send(ctx, done); err != nil {
		return err
	}
	sent(done)
	tick := time.NewTicker(max(pace/bursts, time.Millisecond))
	defer tick.Stop()
	for i := 1; i <= bursts; i++ {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		until := n/2 + (n-n/2)*i/bursts
		if err := p.send(ctx, until-done); err != nil {
			return err
		}
		done = until
		sent(done)
	}
	return nil
}

// send produces n orders and waits until all are acknowledged.
func (p *producer) send(ctx context.Context, n int) error {
	records := make([]*kgo.Record, n)
	for i := range records {
		w := p.mill.next()
		records[i] = &kgo.Record{
			Key: []byte(w.key), Value: w.value, Headers: []kgo.RecordHeader{{Key: idHeader, Value: []byte(w.id)}},
		}
	}
	if err := p.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("produce to %s: %w", p.topic, err)
	}
	return nil
}

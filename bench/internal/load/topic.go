package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Shape says what a topic is filled with. The zero value of a field is: none of that.
type Shape struct {
	Partitions int32
	Records    int
	Keys       int
	// Hot posts everything to one account, whatever the key.
	Hot bool
	// Poison makes every so manyth posting one that can never succeed.
	Poison int
	// Twice makes every so manyth record a second copy of an earlier one, as a producer that was not told of its success
	// sends it.
	Twice int
	// Failing makes every so manyth key one whose postings fail for ever, each time with an error that is worth another try.
	Failing int
	// Stuck makes one key one whose handlers hang until they are stopped.
	Stuck bool
	// Orders numbers the postings, for services that are called.
	Orders bool
	// IDs are what the producer names its records.
	IDs IDs
}

// IDs are the kinds of names that producers give their records.
type IDs int

const (
	// RandomIDs are UUIDs of version 4, Watermill's default.
	RandomIDs IDs = iota
	// OrderedIDs are UUIDs of version 7, which begin with the time.
	OrderedIDs
	// NoIDs are none.
	NoIDs
)

func (i IDs) next() uuid.UUID {
	switch i {
	case OrderedIDs:
		return uuid.Must(uuid.NewV7())
	case NoIDs:
		return uuid.Nil
	case RandomIDs:
	}
	return uuid.New()
}

// Topic is a topic full of postings, and what their effects must add up to.
type Topic struct {
	Shape

	Name string
	// Balances are what the accounts must have at the end, by account.
	Balances []int64
	// Fresh is how many records must have an effect: those that are neither poison nor a copy, and of no unlucky key.
	Fresh int
	// Dead is how many can never succeed.
	Dead int
	// Remembered is how many rows the inbox has before the run.
	Remembered int
	// Unlucky is how many of the others are of keys that fail or hang for ever. Nobody waits for them.
	Unlucky int
}

// Total is the sum of all balances.
func (t *Topic) Total() (sum int64) {
	for _, b := range t.Balances {
		sum += b
	}
	return sum
}

// Create makes an empty topic.
func Create(ctx context.Context, brokers []string, s Shape) (*Topic, error) {
	cl, err := Client(brokers)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	t := &Topic{Shape: s, Name: fmt.Sprintf("bench-%d-%d", s.Partitions, time.Now().UnixNano()), Balances: make([]int64, s.Keys)}
	admin := kadm.NewClient(cl)
	_, err = admin.CreateTopic(ctx, s.Partitions, 1, nil, t.Name)
	return t, err
}

// Client is the producers': no compression, so that what is read costs all languages the same.
func Client(brokers []string) (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ProducerBatchCompression(kgo.NoCompression()))
}

// Fill creates a topic and fills it.
func Fill(ctx context.Context, brokers []string, s Shape) (*Topic, error) {
	t, err := Create(ctx, brokers, s)
	if err != nil {
		return nil, err
	}
	cl, err := Client(brokers)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	var failed atomic.Pointer[error]
	for r := range t.records() {
		cl.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return nil, err
	}
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	return t, nil
}

// records makes up the topic's records, and adds up what they do. Amounts and accounts are the same in every run.
func (t *Topic) records() func(yield func(*kgo.Record) bool) {
	return func(yield func(*kgo.Record) bool) {
		rnd := rand.New(rand.NewPCG(1, 2))
		var last *kgo.Record
		for i := range t.Records {
			r := last
			if t.Twice == 0 || i%t.Twice != t.Twice-1 {
				r = t.next(rnd, i)
			}
			// The last record is never a copy: the run is over with the last effect.
			if i == t.Records-1 && r == last {
				r = t.next(rnd, i)
			}
			last = r
			if !yield(copyOf(r)) {
				return
			}
		}
	}
}

func (t *Topic) next(rnd *rand.Rand, i int) *kgo.Record {
	key := rnd.IntN(t.Keys)
	p := Posting{Account: key, Amount: int64(1 + rnd.IntN(100))}
	if t.Hot {
		p.Account = 0
	}
	if t.Orders {
		p.Order = i + 1
	}
	p.Poison = t.Poison > 0 && i%t.Poison == t.Poison/2
	p.Fails = t.Failing > 0 && key%t.Failing == 0
	p.Hangs = t.Stuck && key == 0
	switch {
	case p.Poison:
		t.Dead++
	case p.Fails, p.Hangs:
		t.Unlucky++
	default:
		t.Fresh++
		t.Balances[p.Account] += p.Amount
	}
	return t.Record(p, key)
}

// Record is a posting of the topic, under an id of its own.
func (t *Topic) Record(p Posting, key int) *kgo.Record { return p.Record(t.Name, key, t.IDs.next()) }

// copyOf is for a producer that writes its offsets into what it is given.
func copyOf(r *kgo.Record) *kgo.Record {
	return &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers}
}

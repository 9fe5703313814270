package parking

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/record"
)

// maxTogether is how many records are parked in one transaction.
const maxTogether = 500

// Parker parks the records of a route for its stack (middleware.Route.Parking). Calls that come together share a
// transaction. It is safe for concurrent use and needs no closing: its goroutine lives while there is something to park.
type Parker struct {
	store *Store
	byKey bool

	mu      sync.Mutex
	waiting []*placing
	busy    bool
}

// NewParker makes a Parker that keeps the order of keys, or none. A route that keeps the order of whole partitions cannot
// park: everything behind a parked record would have to be parked too.
func NewParker(s *Store, byKey bool) *Parker { return &Parker{store: s, byKey: byKey} }

// Key is the line of r: what dedup.RouteConfig.ParkedKey has to be.
func (p *Parker) Key(r *record.Record) int64 { return KeyID(r, p.byKey) }

// Last says that r has been tried as often as the policy allows: if it fails now, it is dead.
func (p *Parker) Last(r *record.Record) bool {
	t, ok := r.Parked.(*Trial)
	return ok && t.Last
}

// Park makes the place of r durable, which has failed. One that parking has delivered waits for its next round. delay is
// what its handler asked for, 0 for the policy's own.
//
// The error is ErrFull at the policy's limits. After any error r may or may not be parked, and parking it again is safe.
func (p *Parker) Park(ctx context.Context, r *record.Record, delay time.Duration, f Failure) error {
	if ours, err := Repark(ctx, r, delay, f); ours {
		return err
	}
	return p.place(ctx, Entry{Record: raw(r), Key: p.Key(r), Failed: &f, Delay: delay})
}

// Follow makes the place of r durable, which did not run because its key is parked. The errors are Park's.
func (p *Parker) Follow(ctx context.Context, r *record.Record) error {
	return p.place(ctx, Entry{Record: raw(r), Key: p.Key(r)})
}

// raw is r as it was read: a replayed dead letter has its envelope among its headers again, which decoding took off.
func raw(r *record.Record) *record.Record {
	env, ok := r.Letter.(*dlq.Envelope)
	if !ok {
		return r
	}
	return &record.Record{
		Topic: r.Topic, TopicID: r.TopicID, Partition: r.Partition, Offset: r.Offset, Follows: r.Follows, LeaderEpoch: r.LeaderEpoch,
		Timestamp: r.Timestamp, Key: r.Key, Value: r.Value, Headers: env.Append(r.Headers), Replay: r.Replay, Identity: r.Identity,
	}
}

// placing is one call.
type placing struct {
	Entry

	done chan error
}

func (p *Parker) place(ctx context.Context, e Entry) error {
	c := &placing{Entry: e, done: make(chan error, 1)}
	p.mu.Lock()
	p.waiting = append(p.waiting, c)
	if !p.busy {
		p.busy = true
		go p.work() //nolint:contextcheck // it works for every caller, whoever leaves first
	}
	p.mu.Unlock()
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *Parker) work() {
	for {
		batch := p.take()
		if len(batch) == 0 {
			return
		}
		entries := make([]Entry, len(batch))
		for i, c := range batch {
			entries[i] = c.Entry
		}
		ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
		err := p.store.Park(ctx, entries)
		cancel()
		for _, c := range batch {
			c.done <- err
		}
	}
}

func (p *Parker) take() []*placing {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(len(p.waiting), maxTogether)
	batch := slices.Clone(p.waiting[:n])
	p.waiting = slices.Delete(p.waiting, 0, n)
	p.busy = n > 0
	return batch
}

package kafka

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// producer is a client of a Publisher's. It gets its producer id with its first record; a broker that refuses that (nobody
// has allowed the user to write anywhere yet) is believed by the client for ever, so such a client is made anew.
type producer struct {
	client *kgo.Client
	proven atomic.Bool    // something was confirmed: it has its id
	users  sync.WaitGroup // the records that it has in hand
}

// refusedID are what a broker answers to who asks for a producer id in vain.
var refusedID = []error{kerr.ClusterAuthorizationFailed, kerr.UnknownServerError}

func (c PublisherConfig) producer(maxBytes int32) (*producer, error) {
	client, err := kgo.NewClient(c.options(kgo.ProducerBatchMaxBytes(maxBytes))...)
	if err != nil {
		return nil, fmt.Errorf("publisher client: %w", err)
	}
	return &producer{client: client}, nil
}

// use gives the client in use for one record, of which done must be told.
func (p *Publisher) use() *producer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current.users.Add(1)
	return p.current
}

// lone is use for a record that must be sent alone: one at a time, by whoever has the turn. The client is made when it is
// first needed.
func (p *Publisher) lone() (*producer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.single == nil {
		made, err := p.cfg.producer(aloneMaxBytes)
		if err != nil {
			return nil, err
		}
		p.single = made
	}
	p.single.users.Add(1)
	return p.single, nil
}

// done takes the answer that a client had for a record.
func (p *Publisher) done(by *producer, topic string, err error) {
	defer by.users.Done()
	if err == nil {
		by.proven.Store(true)
	} else if errors.Is(err, kerr.UnknownTopicID) {
		p.forget(by, topic)
	} else if isAny(err, refusedID) && !by.proven.Load() {
		p.renew(by)
	}
}

// renew puts another client in the place of one that has no producer id and will never have one. What that has in hand
// fails like what failed before; then it is closed.
func (p *Publisher) renew(old *producer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return
	case p.single == old:
		p.single = nil
	case p.current == old:
		made, err := p.cfg.producer(batchMaxBytes)
		if err != nil {
			return // the next record's answer comes here again
		}
		p.current = made
	default:
		return
	}
	p.retired.Go(func() {
		old.users.Wait()
		old.client.Close()
	})
}

package outbox_test

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// door is between a client and the brokers.
type door struct {
	mu     sync.Mutex
	closed bool
	conns  []net.Conn
}

var errShut = errors.New("the brokers are away")

func (d *door) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errShut
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		d.conns = append(d.conns, conn)
	}
	return conn, err
}

// shut cuts every connection and lets none through.
func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, conn := range d.conns {
		_ = conn.Close()
	}
	d.conns = nil
}

// dials is how many connections were made since it was shut.
func (d *door) dials() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.conns)
}

func (d *door) open() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = false
}

func keyOnly(rs []*kgo.Record, key string) (of []*kgo.Record) {
	for _, r := range rs {
		if string(r.Key) == key {
			of = append(of, r)
		}
	}
	return of
}

func maxMessageBytes(value string) []kadm.AlterConfig {
	return []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &value}}
}

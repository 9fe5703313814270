package main

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

var errGateShut = errors.New("the demo has cut the database off")

// gate is the way to a database that is not ours to stop: shut, it breaks every connection and lets none through.
type gate struct {
	mu     sync.Mutex
	closed bool
	conns  map[*gated]struct{}
}

func newGate() *gate { return &gate{conns: map[*gated]struct{}{}} }

// gated is a connection that went through the gate.
type gated struct {
	net.Conn
	gate *gate
}

// Close forgets the connection.
func (c *gated) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.conns, c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}

// through is a dial function that leads through the gate.
func (g *gate) through(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return g.admit(conn)
	}
}

func (g *gate) admit(conn net.Conn) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errors.Join(errGateShut, conn.Close())
	}
	c := &gated{Conn: conn, gate: g}
	g.conns[c] = struct{}{}
	return c, nil
}

func (g *gate) shut() {
	g.mu.Lock()
	g.closed = true
	var broken []net.Conn
	for c := range g.conns {
		broken = append(broken, c.Conn)
	}
	g.mu.Unlock()
	for _, c := range broken {
		_ = c.Close() // broken on purpose
	}
}

func (g *gate) open() {
	g.mu.Lock()
	g.closed = false
	g.mu.Unlock()
}

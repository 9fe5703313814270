package pools

import (
	"context"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// lines are the network connections of a pool, those on which it sends cancel requests included: nobody else knows these.
type lines struct {
	dial pgconn.DialFunc

	mu   sync.Mutex
	open map[*line]struct{}
	over bool
}

// Dial is a pgconn.DialFunc.
func (l *lines) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := l.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	made := &line{Conn: conn, all: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	l.open[made] = struct{}{}
	return made, nil
}

// cut closes what is open, and whatever is dialled from now on.
func (l *lines) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	for made := range l.open {
		_ = made.Conn.Close() // whoever reads or writes has the error
	}
	clear(l.open)
}

// line is one of lines until it is closed.
type line struct {
	net.Conn

	all *lines
}

func (l *line) Close() error {
	l.all.mu.Lock()
	delete(l.all.open, l)
	l.all.mu.Unlock()
	return l.Conn.Close()
}

package lab

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Tap is in front of an address, and knows what is asked there and which answer is whose. What it does to one connection it
// does not do to the next. Safe for concurrent use.
type Tap struct {
	upstream string
	listener net.Listener
	pump     func(*tapped)
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[*tapped]struct{}
	lost  map[kmsg.Key]lose
}

// lose is what becomes of an answer.
type lose int

const (
	cut  lose = 1 + iota // the connection is reset in its place
	hang                 // nothing comes after it either
)

// openTap makes one; frames says that Kafka is spoken.
func openTap(upstream string, frames bool) (*Tap, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &Tap{upstream: upstream, listener: l, pump: (*tapped).copy, conns: map[*tapped]struct{}{}, lost: map[kmsg.Key]lose{}}
	if frames {
		t.pump = (*tapped).frames
	}
	t.wg.Go(t.accept)
	return t, nil
}

func (t *Tap) addr() string { return t.listener.Addr().String() }

// Lose keeps the answers to some of Kafka's requests, which are carried out, until stop is called: with resets each cuts its
// connection, else the connection stays, and is silent.
func (t *Tap) Lose(resets bool, keys ...kmsg.Key) (stop func()) {
	how := hang
	if resets {
		how = cut
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keys {
		t.lost[k] = how
	}
	return func() {
		t.mu.Lock()
		for _, k := range keys {
			delete(t.lost, k)
		}
		t.mu.Unlock()
		t.end(func(c *tapped) bool { return c.isSilent() })
	}
}

// Freeze makes the connections of now half open: neither side hears of the other any more, not even its end, until thaw is
// called. New ones are not concerned.
func (t *Tap) Freeze() (thaw func()) {
	t.mu.Lock()
	frozen := map[*tapped]struct{}{}
	for c := range t.conns {
		c.silence()
		frozen[c] = struct{}{}
	}
	t.mu.Unlock()
	return func() {
		t.end(func(c *tapped) bool {
			_, is := frozen[c]
			return is
		})
	}
}

func (t *Tap) accept() {
	for {
		client, err := t.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", t.upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		c := &tapped{tap: t, client: client, server: server, asked: map[uint32]kmsg.Key{}, ended: make(chan struct{})}
		t.mu.Lock()
		t.conns[c] = struct{}{}
		t.mu.Unlock()
		t.wg.Go(func() {
			t.pump(c)
			t.mu.Lock()
			delete(t.conns, c)
			t.mu.Unlock()
		})
	}
}

func (t *Tap) end(which func(*tapped) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.conns {
		if which(c) {
			c.end()
		}
	}
}

func (t *Tap) fate(k kmsg.Key) lose {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost[k]
}

func (t *Tap) close() {
	_ = t.listener.Close()
	t.end(func(*tapped) bool { return true })
	t.wg.Wait()
}

// tapped is a connection through a tap.
type tapped struct {
	tap            *Tap
	client, server net.Conn
	ended          chan struct{}
	once           sync.Once

	mu     sync.Mutex
	silent bool
	asked  map[uint32]kmsg.Key // what is not answered, by its correlation id
}

func (c *tapped) silence() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = true
}

func (c *tapped) isSilent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.silent
}

func (c *tapped) end() {
	c.once.Do(func() {
		close(c.ended)
		_ = c.client.Close()
		_ = c.server.Close()
	})
}

// both runs the two directions. The end of one ends the other, unless nobody may hear of it.
func (c *tapped) both(requests, replies func() error) {
	var wg sync.WaitGroup
	for _, direction := range []func() error{requests, replies} {
		wg.Go(func() {
			_ = direction() // that it is over is all that matters
			if c.isSilent() {
				<-c.ended
			}
			c.end()
		})
	}
	wg.Wait()
}

// write passes on what was read before anybody fell silent.
func (c *tapped) write(to net.Conn, b []byte) error {
	if c.isSilent() {
		return io.ErrClosedPipe
	}
	_, err := to.Write(b)
	return err
}

func (c *tapped) copy() {
	pass := func(to, from net.Conn) func() error {
		return func() error {
			buf := make([]byte, 32<<10)
			for {
				n, err := from.Read(buf)
				if err != nil {
					return err
				}
				if err := c.write(to, buf[:n]); err != nil {
					return err
				}
			}
		}
	}
	c.both(pass(c.server, c.client), pass(c.client, c.server))
}

// frames notes what is asked, and looks whose each answer is.
func (c *tapped) frames() {
	c.both(func() error {
		return eachFrame(c.client, func(frame []byte) error {
			if len(frame) >= 12 { // size, key, version, correlation id
				c.mu.Lock()
				c.asked[binary.BigEndian.Uint32(frame[8:])] = kmsg.Key(binary.BigEndian.Uint16(frame[4:]))
				c.mu.Unlock()
			}
			return c.write(c.server, frame)
		})
	}, func() error {
		return eachFrame(c.server, func(frame []byte) error {
			if len(frame) >= 8 { // size, correlation id
				c.answer(binary.BigEndian.Uint32(frame[4:]))
			}
			return c.write(c.client, frame)
		})
	})
}

// answer loses the answer if it is one of those.
func (c *tapped) answer(id uint32) {
	c.mu.Lock()
	key := c.asked[id]
	delete(c.asked, id)
	c.mu.Unlock()
	switch c.tap.fate(key) {
	case cut:
		if tcp, ok := c.client.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		c.end()
	case hang:
		c.silence()
	}
}

// eachFrame gives each message with its size before it.
func eachFrame(from io.Reader, do func([]byte) error) error {
	r := bufio.NewReaderSize(from, 32<<10)
	var buf []byte
	for {
		size, err := r.Peek(4)
		if err != nil {
			return err
		}
		n := 4 + int(binary.BigEndian.Uint32(size))
		if cap(buf) < n {
			buf = make([]byte, n)
		}
		if _, err := io.ReadFull(r, buf[:n]); err != nil {
			return err
		}
		if err := do(buf[:n]); err != nil {
			return err
		}
	}
}

package schedule

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// downFor is how long the database is away.
const downFor = 20 * time.Millisecond

var errCut = errors.New("the schedule cut this connection")

type side uint8

const (
	database side = iota
	broker
)

// lifeline is all of a member that leaves its process: it counts what goes over the member's connections and in its
// handlers, and does what the schedule says. Safe for concurrent use.
type lifeline struct {
	over    chan string                     // the first event that ends the member
	offsets func(*kmsg.OffsetCommitRequest) // is told of each commit of offsets before it is sent
	acked   func()                          // of each reply to one

	mu     sync.Mutex
	events []event
	counts map[string]int
	wires  map[*wire]struct{}
	shut   [2]bool
	dead   bool
}

func newLifeline(events []event) *lifeline {
	return &lifeline{over: make(chan string, 1), events: events, counts: map[string]int{}, wires: map[*wire]struct{}{}}
}

// hit counts one of these and says whether the connection it came by, nil for none, is cut.
func (l *lifeline) hit(on string, by *wire) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[on]++
	gone := false
	for _, e := range l.events {
		if e.On == on && e.N == l.counts[on] {
			gone = l.happenLocked(e, by) || gone
		}
	}
	return gone
}

// sum is what has been counted.
func (l *lifeline) sum() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return list(l.counts)
}

func (l *lifeline) happenLocked(e event, by *wire) bool {
	if e.ends() {
		select {
		case l.over <- e.Do:
		default: // another was first
		}
	}
	switch e.Do {
	case crash:
		l.dead = true
		l.shutLocked(database)
		l.shutLocked(broker)
		return true
	case isolate:
		l.shutLocked(broker)
		return by != nil && by.side == broker
	case cut:
		if by != nil {
			by.reset()
		}
		return by != nil
	case down:
		if !l.dead {
			l.shutLocked(database)
			time.AfterFunc(downFor, l.up)
		}
		return by != nil && by.side == database
	}
	return false
}

// shutLocked cuts all connections of a side, and refuses others.
func (l *lifeline) shutLocked(s side) {
	l.shut[s] = true
	for w := range l.wires {
		if w.side == s {
			w.reset()
		}
	}
}

func (l *lifeline) up() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut[database] = l.dead
}

// kill is a crash that no event brought.
func (l *lifeline) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.happenLocked(event{Do: crash}, nil)
}

// dial gives the way to a side.
func (l *lifeline) dial(s side) func(ctx context.Context, network, addr string) (net.Conn, error) {
	var dialer net.Dialer
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if l.isShut(s) {
			return nil, errCut
		}
		conn, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		w := &wire{Conn: conn, line: l, side: s}
		if !l.enter(w) {
			_ = conn.Close()
			return nil, errCut
		}
		return w, nil
	}
}

func (l *lifeline) isShut(s side) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shut[s]
}

// enter notes the connection: dialled -> shut -> it would live on.
func (l *lifeline) enter(w *wire) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut[w.side] {
		return false
	}
	l.wires[w] = struct{}{}
	return true
}

func (l *lifeline) leave(w *wire) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.wires, w)
}

// wire is one connection of a member.
type wire struct {
	net.Conn
	line *lifeline
	side side

	mu         sync.Mutex
	committing bool    // to Postgres: a COMMIT is sent and not answered
	asked      []int16 // of Kafka: the keys of the requests without a reply, oldest first
	rest       []byte  // of a reply; only the reader has it
}

func (w *wire) reset() {
	if tcp, ok := w.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = w.Conn.Close()
}

// Close implements net.Conn.
func (w *wire) Close() error {
	w.line.leave(w)
	return w.Conn.Close()
}

// Write implements net.Conn. Both clients write a request at once.
func (w *wire) Write(b []byte) (int, error) {
	if w.side == database && isCommit(b) && w.line.hit(onSent, w) {
		return len(b), nil
	}
	send := w.query
	if w.side == broker {
		send = w.request
	}
	if !send(b) {
		return 0, errCut
	}
	return w.Conn.Write(b)
}

func isCommit(b []byte) bool { return bytes.Contains(b, []byte("commit\x00")) }

func (w *wire) query(b []byte) bool {
	if isCommit(b) {
		if w.line.hit(onCommit, w) {
			return false
		}
		w.mu.Lock()
		w.committing = true
		w.mu.Unlock()
	}
	return !w.line.hit(onQuery, w)
}

func (w *wire) request(b []byte) bool {
	const header = 12
	if len(b) < header {
		return true
	}
	key := int16(binary.BigEndian.Uint16(b[4:]))
	cut := false
	switch kmsg.Key(key) {
	case kmsg.OffsetCommit:
		if w.line.offsets != nil && !w.line.isShut(broker) {
			w.line.offsets(offsetCommit(b))
		}
		cut = w.line.hit(onOffsets, w)
	case kmsg.Produce:
		cut = w.line.hit(onProduce, w)
	}
	if w.line.hit(onRequest, w) || cut {
		return false
	}
	w.mu.Lock()
	w.asked = append(w.asked, key)
	w.mu.Unlock()
	return true
}

// offsetCommit reads a request: size, key, version, correlation id, client id, tags, and then what it says.
func offsetCommit(b []byte) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.SetVersion(int16(binary.BigEndian.Uint16(b[6:])))
	rest := b[14:]
	if n := int16(binary.BigEndian.Uint16(b[12:])); n > 0 {
		rest = rest[n:]
	}
	if req.IsFlexible() {
		rest = rest[1:]
	}
	if err := req.ReadFrom(rest); err != nil {
		panic(err)
	}
	return req
}

// Read implements net.Conn.
func (w *wire) Read(b []byte) (int, error) {
	if w.side == database {
		return w.answer(b)
	}
	if len(w.rest) == 0 {
		if err := w.reply(); err != nil {
			return 0, err
		}
	}
	n := copy(b, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

func (w *wire) answer(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n == 0 {
		return n, err
	}
	w.mu.Lock()
	committed := w.committing && bytes.Contains(b[:n], []byte("COMMIT\x00"))
	if committed {
		w.committing = false
	}
	w.mu.Unlock()
	cut := committed && w.line.hit(onCommitted, w)
	if w.line.hit(onAnswer, w) || cut {
		return 0, errCut
	}
	return n, err
}

// reply takes a whole reply of Kafka's; they come in the order of the requests.
func (w *wire) reply() error {
	var size [4]byte
	if _, err := io.ReadFull(w.Conn, size[:]); err != nil {
		return err
	}
	b := make([]byte, 4+binary.BigEndian.Uint32(size[:]))
	copy(b, size[:])
	if _, err := io.ReadFull(w.Conn, b[4:]); err != nil {
		return err
	}
	w.mu.Lock()
	var key int16 = -1
	if len(w.asked) > 0 {
		key, w.asked = w.asked[0], w.asked[1:]
	}
	w.mu.Unlock()
	if w.lost(kmsg.Key(key), len(b)) {
		return errCut
	}
	w.rest = b
	return nil
}

// lost says whether the reply is cut off.
func (w *wire) lost(key kmsg.Key, size int) bool {
	const empty = 200 // a fetch without records is smaller
	switch key {
	case kmsg.OffsetCommit:
		w.line.acked()
		return w.line.hit(onOffsetsOK, w)
	case kmsg.Produce:
		return w.line.hit(onProduced, w)
	case kmsg.Fetch:
		return size > empty && w.line.hit(onFetched, w)
	}
	return false
}

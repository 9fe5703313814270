package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/headrace/headrace/bench/internal/load"
)

// servePayments is the service's main. The charges are answered by hand, not by net/http's server: what that costs a
// request (30 µs of processor time to 14) would be taken from the contenders, who share the machine with it.
func servePayments(ctx context.Context, out io.Writer) error {
	charges, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	audit, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c := &ledger{orders: map[int]int{}}
	server := &http.Server{Handler: http.HandlerFunc(c.books), ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = charges.Close(); _ = server.Close() })
	go func() { _ = server.Serve(audit) }()
	fmt.Fprintf(out, "http://%s/charges http://%s\n", charges.Addr(), audit.Addr())
	for {
		conn, err := charges.Accept()
		if err != nil {
			return err
		}
		go c.serve(conn)
	}
}

// ledger is what the service remembers.
type ledger struct {
	mu     sync.Mutex
	orders map[int]int // calls, by order
}

// serve answers the charges of one connection. The bench hears from its contenders of what it cannot read.
func (l *ledger) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	var body, answer []byte
	for {
		n, err := skipHeader(in)
		if err != nil {
			return
		}
		body = slices.Grow(body[:0], n)[:n]
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		var p load.Posting
		if err := json.Unmarshal(body, &p); err != nil || p.Order == 0 {
			return
		}
		time.Sleep(think) //nolint:forbidigo // it is what the service does
		l.note(p.Order)
		receipt := fmt.Sprintf(`{"id":"receipt of order %d"}`, p.Order)
		answer = fmt.Appendf(answer[:0], "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(receipt), receipt)
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

// skipHeader reads a request up to its body, and gives the length of that.
func skipHeader(in *bufio.Reader) (length int, err error) {
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			return length, nil
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok { // as Go's client writes it
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, err
			}
		}
	}
}

func (l *ledger) note(order int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orders[order]++
}

// books tells, or forgets.
func (l *ledger) books(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Method == http.MethodDelete {
		clear(l.orders)
	}
	b := books{Orders: len(l.orders)}
	for _, n := range l.orders {
		b.Calls += n
	}
	_ = json.NewEncoder(w).Encode(b) // the bench hears of it
}

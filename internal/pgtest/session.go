package pgtest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

var errCut = errors.New("the proxy cut the connection")

// session is one client's connection through the proxy.
type session struct {
	proxy  *Proxy
	client net.Conn
	ctx    context.Context // ends with the session
	cancel context.CancelFunc

	mu      sync.Mutex
	server  net.Conn // nil until connected
	pending []Action // of each request the server has not answered yet, oldest first
}

func newSession(p *Proxy, client net.Conn) *session {
	s := &session{proxy: p, client: client}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// cut resets the client's connection, which sees ECONNRESET.
func (s *session) cut() {
	if tcp, ok := s.client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	s.end()
}

// end closes both connections; what was written to the client still arrives.
func (s *session) end() {
	s.cancel()
	_ = s.client.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		_ = s.server.Close()
	}
}

// endBy ends the session as err, the end of one of its directions, says.
func (s *session) endBy(err error) {
	if errors.Is(err, errCut) {
		s.cut()
		return
	}
	s.end()
}

func (s *session) serve() {
	defer s.end()
	startup, isCancel, err := s.startup()
	if err != nil || !s.proxy.gate(s.ctx) {
		return
	}
	if err := s.connect(startup); err != nil {
		s.cut() // a server that is down is the client's to see
		return
	}
	if isCancel {
		_, _ = io.Copy(io.Discard, s.server) // the server closes when it has taken the request
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.endBy(s.upstream()) })
	s.endBy(s.downstream())
	wg.Wait()
}

// startup reads up to the message that opens the session, refusing encryption on the way.
func (s *session) startup() (raw []byte, isCancel bool, err error) {
	for {
		raw, code, err := readStartup(s.client)
		if err != nil {
			return nil, false, err
		}
		if code != sslCode && code != gssCode {
			return raw, code == cancelCode, nil
		}
		if _, err := s.client.Write([]byte("N")); err != nil {
			return nil, false, err
		}
	}
}

// connect opens the session at the server, which answers the start-up with a ReadyForQuery, like a request.
func (s *session) connect(startup []byte) error {
	var dialer net.Dialer
	server, err := dialer.DialContext(s.ctx, "tcp", s.proxy.server)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server, s.pending = server, []Action{{}}
	if s.ctx.Err() != nil { // dialled -> cut found no server to close -> nobody would
		_ = server.Close()
	}
	_, err = server.Write(startup)
	return err
}

// upstream forwards the client's messages a request at a time: nothing of a request may reach the server before it is
// decided. What belongs to no request (COPY data, a password, Flush) goes through with what came before it.
func (s *session) upstream() error {
	in := bufio.NewReader(s.client)
	follow := newStatements()
	var buffered []byte
	for {
		m, err := readMessage(in)
		if err != nil {
			return err
		}
		buffered = append(buffered, m...)
		ends := follow.see(m)
		if !ends && isPart(m.kind()) {
			continue
		}
		if ends {
			if err := s.begin(s.proxy.rules.decide(follow.take())); err != nil {
				return err
			}
		}
		if !s.proxy.gate(s.ctx) {
			return errCut
		}
		if _, err := s.server.Write(buffered); err != nil {
			return err
		}
		buffered = buffered[:0]
	}
}

// isPart says whether a message of the client is a part of a request that another message ends.
func isPart(kind byte) bool {
	switch kind {
	case 'P', 'B', 'D', 'E', 'C': // Parse, Bind, Describe, Execute, Close
		return true
	}
	return false
}

// begin does the action's part before the request is forwarded.
func (s *session) begin(do Action) error {
	if do.kind == cutBefore || do.kind == hold && !s.wait(do.until) {
		return errCut
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, do)
	return nil
}

// downstream forwards the server's messages, except to requests whose reply is to be lost.
func (s *session) downstream() error {
	in := bufio.NewReader(s.server)
	for {
		m, err := readMessage(in)
		if err != nil {
			return err
		}
		do := s.answering()
		ready := m.kind() == 'Z'
		if ready {
			s.answered()
		}
		if do.kind == holdReply && !s.wait(do.until) || ready && do.kind == cutReply {
			return errCut
		}
		if do.kind == cutReply || do.kind == swallowReply {
			continue
		}
		if !s.proxy.gate(s.ctx) {
			return errCut
		}
		if _, err := s.client.Write(m); err != nil {
			return err
		}
	}
}

// answering is the action of the request that the server answers now.
func (s *session) answering() Action {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return Action{} // a notice or a notification between requests
	}
	return s.pending[0]
}

func (s *session) answered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) > 0 {
		s.pending = s.pending[1:]
	}
}

// wait waits for the channel, and says false when the session ends first.
func (s *session) wait(until <-chan struct{}) bool {
	select {
	case <-until:
		return true
	case <-s.ctx.Done():
		return false
	}
}

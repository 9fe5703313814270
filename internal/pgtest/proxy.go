package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/freeport"
)

// Proxy is a TCP proxy in front of Postgres that breaks connections on demand. It is safe for concurrent use; the test's
// end closes it.
type Proxy struct {
	dsn    string
	addr   string
	server string
	rules  rules
	wg     sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while connections are refused
	sessions map[*session]struct{}
	paused   chan struct{} // closed by Resume; nil while not paused
	closed   bool
}

// NewProxy puts a proxy in front of the server of dsn, a URL. The proxy speaks no TLS and refuses clients that want it.
func NewProxy(t testing.TB, dsn string) *Proxy {
	t.Helper()
	p, err := OpenProxy(dsn)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// OpenProxy is NewProxy outside of a test: whoever opened it closes it.
func OpenProxy(dsn string) (*Proxy, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, errors.New("pgtest: proxy: the DSN is no URL") // the error would quote the password
	}
	port, err := freeport.Get()
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		addr:     net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		server:   u.Host,
		sessions: map[*session]struct{}{},
	}
	if u.Port() == "" {
		p.server = net.JoinHostPort(u.Hostname(), "5432")
	}
	p.dsn = rewrite(dsn, func(u *url.URL) {
		u.Host = p.addr
		query := u.Query()
		query.Set("sslmode", "disable")
		u.RawQuery = query.Encode()
	})
	return p, p.Accept()
}

// DSN is the URL of the same database through the proxy.
func (p *Proxy) DSN() string { return p.dsn }

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.addr }

// Requests is how many requests have arrived so far. A sweep that cuts at every index takes its end from a run that was
// not cut.
func (p *Proxy) Requests() int { return p.rules.requests() }

// Once does the action to the next request that matches; the returned channel is closed when it has met it. Earlier
// rules go first.
func (p *Proxy) Once(match Match, do Action) <-chan struct{} {
	return p.rules.add(&rule{match: match, action: do, once: true}).fired
}

// Always does the action to every request that matches until stop is called. Earlier rules go first.
func (p *Proxy) Always(match Match, do Action) (stop func()) {
	r := p.rules.add(&rule{match: match, action: do})
	return func() { p.rules.remove(r) }
}

// CutAll resets every connection there is now.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.sessions {
		s.cut()
	}
}

// Pause lets nothing through in either direction, as a network that drops packets would, until Resume. Connections can
// be made and wait.
func (p *Proxy) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused == nil {
		p.paused = make(chan struct{})
	}
}

// Resume ends a pause; what waited goes on.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused != nil {
		close(p.paused)
		p.paused = nil
	}
}

// Refuse refuses new connections; those there are live on.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

// Accept takes new connections again, on the same port.
func (p *Proxy) Accept() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil || p.closed {
		return nil
	}
	listener, err := listen(p.addr)
	if err != nil {
		return fmt.Errorf("pgtest: proxy: %w", err)
	}
	p.listener = listener
	p.wg.Go(func() { p.accept(listener) })
	return nil
}

// listen tries again while the port is taken, as freeport says it may be for a moment.
func listen(addr string) (net.Listener, error) {
	const attempts, every = 100, 20 * time.Millisecond
	for i := 0; ; i++ {
		listener, err := net.Listen("tcp", addr)
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) || i == attempts {
			return listener, err
		}
		<-time.After(every)
	}
}

// Down is a server that is away: what is connected is cut, what comes is refused, until Accept.
func (p *Proxy) Down() {
	p.Refuse()
	p.CutAll()
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		s := newSession(p, client)
		if !p.enter(s, listener) {
			s.cut()
			return
		}
		p.wg.Go(func() {
			s.serve()
			p.leave(s)
		})
	}
}

// enter notes the session. A connection in the listener's hand when it closes must not slip through: Accept returns it
// -> Down refuses and cuts all -> it would live on.
func (p *Proxy) enter(s *session, listener net.Listener) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != listener {
		return false
	}
	p.sessions[s] = struct{}{}
	return true
}

func (p *Proxy) leave(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, s)
}

// gate waits while the proxy is paused, and says false when the session ends first.
func (p *Proxy) gate(ctx context.Context) bool {
	for {
		p.mu.Lock()
		paused := p.paused
		p.mu.Unlock()
		if paused == nil {
			return true
		}
		select {
		case <-paused:
		case <-ctx.Done():
			return false
		}
	}
}

// Close cuts every connection, and takes no more.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Down()
	p.wg.Wait()
}

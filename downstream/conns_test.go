package downstream_test

import (
	"net"
	"sync"
)

// connSet is the connections of a server, which its end closes.
type connSet struct {
	mu    sync.Mutex
	all   []net.Conn
	ended bool
	wg    sync.WaitGroup
}

func (s *connSet) serve(c net.Conn, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, c)
	s.wg.Go(func() {
		defer c.Close() //nolint:errcheck // the test is over, or it is what the test is about
		f()
	})
	if s.ended {
		_ = c.Close()
	}
}

func (s *connSet) end() {
	s.mu.Lock()
	s.ended = true
	for _, c := range s.all {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

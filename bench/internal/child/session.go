package child

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"
)

// sayEvery is how often a child says how far it is.
const sayEvery = 50 * time.Millisecond

// Session is a child's side of the protocol. It is safe for concurrent use.
type Session struct {
	Spec

	out   io.Writer
	mu    sync.Mutex // one line at a time
	once  sync.Once
	began time.Time
	ended atomic.Int64
	seen  atomic.Int64
	took  atomic.Int64
	base  uint64 // objects allocated before FIRST
	delay delays
}

// Serve is a child's main: it runs the contender until in ends.
func Serve(ctx context.Context, spec Spec, in io.Reader, out io.Writer, run func(context.Context, *Session) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in) // its end is all that it says
		cancel()
	}()
	s := &Session{Spec: spec, out: out}
	stop, err := profile(spec.Options.Profile)
	if err != nil {
		return err
	}
	told := make(chan struct{})
	go func() { defer close(told); s.tell(ctx) }()
	err = run(ctx, s)
	cancel()
	<-told
	stop()
	if err != nil {
		return err
	}
	return s.sayFigures()
}

// profile writes a CPU profile to the file, and beside it what is in the heap at the end; "" is none.
func profile(file string) (stop func(), err error) {
	if file == "" {
		return func() {}, nil
	}
	out, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(out); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		if heap, err := os.Create(file + ".heap"); err == nil {
			_ = pprof.WriteHeapProfile(heap)
			_ = heap.Close()
		}
		_ = out.Close()
	}, nil
}

func (s *Session) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// Ready says that the contender is connected and begins to consume now.
func (s *Session) Ready() { s.say("READY") }

// First says that a handler begins; only the first time counts.
func (s *Session) First() {
	s.once.Do(func() {
		s.base = mallocs()
		s.began = time.Now()
		s.say("FIRST %d", s.began.UnixNano())
	})
}

// Done says that n more records were handled.
func (s *Session) Done(n int) {
	after := s.seen.Add(int64(n))
	if all := int64(s.Records); after >= all && after-int64(n) < all {
		s.ended.Store(time.Now().UnixNano())
		s.say("SEEN %d", after)
	}
}

// Took says that the effect of a record that was due at a time, in nanoseconds since 1970, is committed.
//
// Records without such a time warm it up.
func (s *Session) Took(due int64) {
	if due != 0 {
		s.delay.add(time.Now().UnixNano() - due)
		s.took.Add(1)
	}
}

func (s *Session) tell(ctx context.Context) {
	tick := time.NewTicker(sayEvery)
	defer tick.Stop()
	var said, told int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if n := s.seen.Load(); n != said {
			s.say("SEEN %d", n)
			said = n
		}
		if n := s.took.Load(); n != told {
			s.say("TOOK %d", n)
			told = n
		}
	}
}

func (s *Session) sayFigures() error {
	f := Figures{Allocs: mallocs() - s.base, Latencies: s.delay.latencies()}
	if ended := s.ended.Load(); ended > 0 {
		f.Seconds = time.Unix(0, ended).Sub(s.began).Seconds()
	}
	line, err := json.Marshal(f)
	if err != nil {
		return err
	}
	s.say("%s", line)
	return nil
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

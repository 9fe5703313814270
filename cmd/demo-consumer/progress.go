package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/headrace/headrace/record"
)

// progress is the live line: on a terminal one that rewrites itself, elsewhere a line a few seconds.
type progress struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	tally    *tally
	// uncommitted is how many records of the topic the group has not committed: what is settled is, a moment later, once all
	// before it in its partition are.
	uncommitted func() int64
	last        snapshot
	lastAt      time.Time
	width       int
}

func newProgress(out io.Writer, t *tally, uncommitted func() int64) *progress {
	return &progress{out: out, terminal: isTerminal(out), tally: t, uncommitted: uncommitted, lastAt: time.Now()}
}

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// start draws until ctx ends or the returned function is called, which waits for the last stroke.
func (p *progress) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { p.run(ctx) })
	return sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
}

// run draws until ctx ends.
func (p *progress) run(ctx context.Context) {
	every := 2 * time.Second
	if p.terminal {
		every = 200 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			p.finish()
			return
		case <-tick.C:
			p.draw()
		}
	}
}

// note says what happens, above the live line.
func (p *progress) note(format string, args ...any) { p.say("• "+format, args...) }

// say writes a line above the live one.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.out, format+"\n", args...)
}

func (p *progress) draw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := p.line(time.Now())
	if !p.terminal {
		fmt.Fprintln(p.out, line)
		return
	}
	p.clear()
	fmt.Fprint(p.out, line)
	p.width = len([]rune(line))
}

func (p *progress) line(now time.Time) string {
	s := p.tally.snapshot()
	rate := float64(s.total+s.again-p.last.total-p.last.again) / max(now.Sub(p.lastAt).Seconds(), 0.001)
	p.last, p.lastAt = s, now
	var b strings.Builder
	fmt.Fprintf(&b, "%7d settled %6.0f/s  uncommitted %6d ", s.total, rate, p.uncommitted())
	for _, o := range record.Outcomes {
		if n := s.outcomes[o]; n > 0 {
			fmt.Fprintf(&b, " %s %d", o, n)
		}
	}
	if s.again > 0 {
		fmt.Fprintf(&b, "  redelivered %d", s.again)
	}
	if s.holding > 0 {
		fmt.Fprintf(&b, "  holding %d", s.holding)
	}
	fmt.Fprintf(&b, "  breaker %s", strings.ReplaceAll(s.payments, "_", " "))
	return b.String()
}

func (p *progress) clear() {
	if p.terminal && p.width > 0 {
		fmt.Fprint(p.out, "\r"+strings.Repeat(" ", p.width)+"\r")
		p.width = 0
	}
}

func (p *progress) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

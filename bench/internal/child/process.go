package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// readyTimeout leaves room for a JVM that warms up on two busy cores.
	readyTimeout = 3 * time.Minute
	stopTimeout  = time.Minute
)

// Process is the driver's side: a child that runs. It is safe for concurrent use; whoever started it stops it.
type Process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	ready  chan struct{}
	exited chan struct{} // err and figures are set

	readyOnce sync.Once
	first     atomic.Int64
	seen      atomic.Int64
	took      atomic.Int64
	figures   Figures
	err       error
}

// Start starts a child: argv is its program and what comes before the spec. What it writes to its standard error is seen
// on the driver's.
func Start(argv []string, spec Spec) (*Process, error) {
	arg, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(argv[0], append(argv[1:len(argv):len(argv)], string(arg))...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, stdin: stdin, ready: make(chan struct{}), exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		last := p.listen(stdout)
		if p.err = cmd.Wait(); p.err == nil && last != "" {
			p.err = json.Unmarshal([]byte(last), &p.figures)
		}
	}()
	return p, nil
}

// listen reads what the child says to its end, and returns its figures' line.
func (p *Process) listen(stdout io.Reader) (figures string) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		line := lines.Text()
		word, rest, _ := strings.Cut(line, " ")
		n, _ := strconv.ParseInt(rest, 10, 64)
		switch {
		case word == "READY":
			p.readyOnce.Do(func() { close(p.ready) })
		case word == "FIRST":
			p.first.CompareAndSwap(0, n)
		case word == "SEEN":
			p.seen.Store(n)
		case word == "TOOK":
			p.took.Store(n)
		case strings.HasPrefix(line, "{"):
			figures = line
		}
	}
	return figures
}

// Ready waits until the child begins to consume.
func (p *Process) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	select {
	case <-p.ready:
		return nil
	case <-p.exited:
		return p.ended()
	case <-ctx.Done():
		return fmt.Errorf("the child was not ready: %w", ctx.Err())
	}
}

// First is when the first handler began, false if it did not yet.
func (p *Process) First() (time.Time, bool) {
	n := p.first.Load()
	return time.Unix(0, n), n != 0
}

// Seen is how many records the child has handled.
func (p *Process) Seen() int { return int(p.seen.Load()) }

// Took is how many records have told when their effects were committed.
func (p *Process) Took() int { return int(p.took.Load()) }

// Err says why the child ended by itself, nil while it runs.
func (p *Process) Err() error {
	select {
	case <-p.exited:
		return p.ended()
	default:
		return nil
	}
}

func (p *Process) ended() error {
	if p.err == nil {
		return errors.New("the child ended before it was told to")
	}
	return fmt.Errorf("the child ended: %w", p.err)
}

// Usage is what the child has taken of the machine so far.
func (p *Process) Usage() (Usage, error) { return usageOf(p.cmd.Process.Pid) }

// Stop tells the child to end, waits for it and returns its figures. One that does not end in a minute is killed, and
// that is an error.
func (p *Process) Stop() (Figures, error) {
	_ = p.stdin.Close() // one that has ended has closed it
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.exited:
		return p.figures, p.err
	case <-timer.C:
		p.Kill()
		return Figures{}, fmt.Errorf("the child did not end within %s of being told to", stopTimeout)
	}
}

// Kill ends the child whatever it does.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.exited
}

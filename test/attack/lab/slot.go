package lab

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/headrace/headrace/test/attack/member"
)

const (
	// again is after what time a process that has ended by itself is started again.
	again = 500 * time.Millisecond
	// stopTime is what a member may take to stop: its graces and the commit, with a machine that is busy.
	stopTime = 30 * time.Second
)

// Slot is a member: the process of now, and those before it. One that ends by itself is started again, as an orchestrator
// would. Safe for concurrent use.
type Slot struct {
	dir    string
	number int
	cfg    member.Config

	mu      sync.Mutex
	process *process // nil while it is to be down
	started int
	buggy   int // of those that were started
	ends    map[string]int
}

// process is one run of a member.
type process struct {
	cmd     *exec.Cmd
	in      io.Closer
	metrics string        // where, once ready is closed
	ready   chan struct{} // closed when it has said so, or has ended
	gone    chan struct{} // closed when it has ended
}

// Up starts the member if it is down.
func (s *Slot) Up() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		return nil
	}
	return s.startLocked()
}

func (s *Slot) startLocked() error {
	p, err := s.spawn()
	if err != nil {
		return err
	}
	s.process = p
	go s.watch(p)
	return nil
}

func (s *Slot) spawn() (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(s.cfg)
	if err != nil {
		return nil, err
	}
	s.started++
	if s.cfg.Bug != "" {
		s.buggy++
	}
	log, err := os.Create(filepath.Join(s.dir, fmt.Sprintf("member-%d-%03d.log", s.number, s.started)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	p := &process{cmd: exec.Command(self), ready: make(chan struct{}), gone: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), member.Env+"="+string(text), "GOTRACEBACK=all")
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is the driver's
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.follow(out)
	return p, nil
}

// follow reads where the metrics are, and then waits for the end.
func (p *process) follow(out io.Reader) {
	line, _ := bufio.NewReader(out).ReadString('\n') // one that ends before has nothing to say
	p.metrics = strings.TrimSpace(line)
	close(p.ready)
	_ = p.cmd.Wait() // how it ended is in its state
	close(p.gone)
}

// watch starts the next process when one has ended that was not to.
func (s *Slot) watch(p *process) {
	<-p.gone
	s.mu.Lock()
	s.ends[p.cmd.ProcessState.String()]++
	wanted := s.process == p
	s.mu.Unlock()
	if !wanted {
		return
	}
	<-time.After(again)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == p {
		s.process = nil
		_ = s.startLocked() // the drain at the end finds that nobody works
	}
}

// Running says whether the member is up.
func (s *Slot) Running() bool { return s.now() != nil }

func (s *Slot) now() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// Signal sends one to the process of now, if there is one.
func (s *Slot) Signal(sig syscall.Signal) {
	if p := s.now(); p != nil {
		_ = p.cmd.Process.Signal(sig) // it may have ended
	}
}

// Down ends the member with SIGKILL, for good.
func (s *Slot) Down() {
	if p := s.take(); p != nil {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.gone
	}
}

// Term asks the member to stop, for good. It is an error if it does not.
func (s *Slot) Term() error {
	p := s.take()
	if p == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.gone:
		return nil
	case <-time.After(stopTime):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // its goroutines are in the log
		select {
		case <-p.gone:
		case <-time.After(time.Second):
			_ = p.cmd.Process.Kill()
			<-p.gone
		}
		return fmt.Errorf("member %d did not stop within %s of SIGTERM", s.number, stopTime)
	}
}

func (s *Slot) take() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.process
	s.process = nil
	return p
}

// PID is the process of now, 0 for none.
func (s *Slot) PID() int {
	if p := s.now(); p != nil {
		return p.cmd.Process.Pid
	}
	return 0
}

// Metrics is where those of the process of now are, "" for nowhere.
func (s *Slot) Metrics() string {
	p := s.now()
	if p == nil {
		return ""
	}
	select {
	case <-p.ready:
		return p.metrics
	default:
		return ""
	}
}

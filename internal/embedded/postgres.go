package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/internal/freeport"
)

const (
	startTimeout = time.Minute
	// pollEvery is how often a starting server is asked whether it takes connections.
	pollEvery    = 20 * time.Millisecond
	portAttempts = 5
)

// Config says how the server differs from the default. The zero value is right for tests.
type Config struct {
	// Durable keeps what a production server keeps: fsync and full_page_writes. Without it committed data survives the
	// death of the server (the kernel has it) but not the death of the machine; synchronous_commit stays on either way.
	// Defaults to false.
	Durable bool
	// Settings are server parameters (postgresql.conf) set over those of this package. Defaults to none.
	Settings map[string]string
	// Dir is where the server's own directory is made. As root it must be one that the user "nobody" can enter. Defaults to
	// the system's directory for temporary files.
	Dir string
}

// Server is a Postgres that this process started. It is safe for concurrent use; whoever started it closes it.
type Server struct {
	install  *installation
	cfg      Config
	dir      string // holds data/ and log; the guard removes it
	port     int
	password string
	guard    *guard

	mu      sync.Mutex
	process *process // nil while stopped
	closed  bool
}

// process is one run of the server.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// Postgres starts a server on a free port of 127.0.0.1 and returns when it takes connections. ctx bounds the start
// only. The caller closes the server.
func Postgres(ctx context.Context, cfg Config) (*Server, error) {
	in, err := install(ctx)
	if err != nil {
		return nil, fmt.Errorf("embedded postgres: %w", err)
	}
	s, err := newServer(ctx, in, cfg)
	if err != nil {
		return nil, fmt.Errorf("embedded postgres: %w", err)
	}
	if err := s.startOnFreePort(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("embedded postgres: %w", err), s.Close())
	}
	return s, nil
}

func newServer(ctx context.Context, in *installation, cfg Config) (*Server, error) {
	password, err := in.password()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(cfg.Dir, "headrace-postgres-")
	if err != nil {
		return nil, err
	}
	if err := ownByServer(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	g, err := newGuard(ctx, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &Server{install: in, cfg: cfg, dir: dir, password: password, guard: g}
	if err := run(ctx, dir, "cp", "-R", in.template, s.data()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// startOnFreePort tries another port when somebody was faster: freeport looks -> another process listens -> the
// server's bind fails.
func (s *Server) startOnFreePort(ctx context.Context) error {
	var err error
	for range portAttempts {
		if s.port, err = freeport.Get(); err != nil {
			return err
		}
		err = s.Start(ctx)
		if err == nil || !strings.Contains(err.Error(), "Address already in use") {
			return err
		}
	}
	return err
}

// DSN is the connection string of the superuser on the database "postgres". It contains the password.
func (s *Server) DSN() string { return s.DatabaseDSN("postgres") }

// DatabaseDSN is the connection string of the superuser on another database of the server.
func (s *Server) DatabaseDSN(name string) string {
	return fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%d/%s?sslmode=disable", s.password, s.port, name)
}

// Addr is the server's host and port.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Start brings a stopped or killed server back on its data and its port, and returns when it takes connections. It
// does nothing when the server runs.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("embedded postgres: the server is closed")
	}
	if s.process != nil && s.process.running() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return s.startLocked(ctx)
}

// startLocked tries again while the backends of a killed server still hold its shared memory: the postmaster is killed
// -> a backend in a statement notices only at its next wait -> the new postmaster refuses the data directory.
func (s *Server) startLocked(ctx context.Context) error {
	for {
		p, err := s.launch(ctx)
		if err != nil {
			return err
		}
		err = s.waitReady(ctx, p)
		if err == nil {
			s.process = p
			return nil
		}
		err = errors.Join(err, p.kill())
		if !strings.Contains(err.Error(), "pre-existing shared memory block") || !backoff.Wait(ctx, pollEvery) {
			return err
		}
	}
}

// launch starts the server, which outlives ctx.
func (s *Server) launch(ctx context.Context) (*process, error) {
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	cmd := serverCommand(context.WithoutCancel(ctx), s.dir, filepath.Join(s.install.bin, "postgres"), s.arguments()...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(p.done)
	}()
	return p, s.guard.watch(cmd.Process.Pid)
}

func (s *Server) arguments() []string {
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    fmt.Sprint(s.port),
		"unix_socket_directories": "",
		"max_connections":         "200",
	}
	if !s.cfg.Durable {
		settings["fsync"] = "off"
		settings["full_page_writes"] = "off"
	}
	for name, value := range s.cfg.Settings {
		settings[name] = value
	}
	args := []string{"-D", s.data()}
	for name, value := range settings {
		args = append(args, "-c", name+"="+value)
	}
	return args
}

func (s *Server) waitReady(ctx context.Context, p *process) error {
	for {
		err := s.ping(ctx)
		if err == nil {
			return nil
		}
		if !p.running() {
			return fmt.Errorf("the server ended while starting: %s", s.logTail())
		}
		if !backoff.Wait(ctx, pollEvery) {
			return fmt.Errorf("the server does not take connections: %w; its log: %s", err, s.logTail())
		}
	}
}

func (s *Server) ping(ctx context.Context) error {
	conn, err := pgconn.Connect(ctx, s.DSN())
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// Stop ends the server as an administrator would (a fast shutdown: sessions get 57P01, a checkpoint is written) and
// returns when it has ended. It does nothing when the server does not run.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endLocked(func(p *process) error { return p.signal(fastShutdown) })
}

// Kill ends the server and its sessions with SIGKILL: not a word to anybody, and recovery from the write-ahead log at
// the next [Server.Start].
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endLocked((*process).kill)
}

// Restart stops the server and starts it again.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(); err != nil {
		return err
	}
	return s.Start(ctx)
}

func (s *Server) endLocked(end func(*process) error) error {
	if s.process == nil {
		return nil
	}
	err := end(s.process)
	s.process = nil
	if err != nil {
		return fmt.Errorf("embedded postgres: %w", err)
	}
	return s.guard.watch(0)
}

// Close ends the server at once and removes its directory. A second Close does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return errors.Join(
		s.endLocked(func(p *process) error { return p.signal(immediateShutdown) }),
		s.guard.close())
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// logTail is the end of the server's log, for an error message.
func (s *Server) logTail() string {
	const most = 2000
	f, err := os.Open(filepath.Join(s.dir, "log"))
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd)
	}
	text, _ := io.ReadAll(f)
	return strings.TrimSpace(string(text))
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal sends sig and waits for the end. A process that has ended already is no error.
func (p *process) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

func (p *process) kill() error {
	var err error
	if p.running() {
		err = killAll(p.cmd.Process.Pid)
	}
	<-p.done
	return err
}

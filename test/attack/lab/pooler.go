package lab

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// poolerEnv names the pgbouncer to run, where it is not in the path. LD_LIBRARY_PATH is its own matter.
const poolerEnv = "PGBOUNCER"

// poolerConfig pools transactions: each may run on another of the server's sessions. There are fewer of these than the members
// would have.
const poolerConfig = `[databases]
%[1]s = host=%[2]s port=%[3]s dbname=%[1]s user=%[4]s password=%[5]s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %[6]d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 500
server_login_retry = 1
ignore_startup_parameters = extra_float_digits
`

// pooler is a pgbouncer in front of the run's database. The faults of the way to the database are behind it. One that ends by
// itself is started again, as a service would be: 1.18 does when the server comes and goes.
type pooler struct {
	args []string
	log  *os.File
	addr string
	done chan struct{} // closed when there will be no further process

	mu     sync.Mutex
	cmd    *exec.Cmd
	closed bool
}

// UsePooler puts a pgbouncer between the members that start from now on and the database.
func (s *Site) UsePooler() error {
	path := os.Getenv(poolerEnv)
	if path == "" {
		path = "pgbouncer"
	}
	server, err := url.Parse(s.SQL.DSN())
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	host, serverPort, err := net.SplitHostPort(s.Database.Addr())
	if err != nil {
		return err
	}
	password, _ := server.User.Password()
	config := filepath.Join(s.Dir, "pgbouncer.ini")
	text := fmt.Sprintf(poolerConfig, s.Group, host, serverPort, server.User.Username(), password, port)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil { //nolint:gosec // it reads it as another user
		return err
	}
	if err := os.Chmod(s.Dir, 0o755); err != nil { //nolint:gosec // the same
		return err
	}
	args := []string{path, config}
	if os.Getuid() == 0 { // as root it refuses
		args = []string{path, "-u", "nobody", config}
	}
	log, err := os.Create(filepath.Join(s.Dir, "pgbouncer.txt"))
	if err != nil {
		return err
	}
	p := &pooler{args: args, log: log, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), done: make(chan struct{})}
	if err := p.start(); err != nil {
		return errors.Join(fmt.Errorf("pgbouncer (in the path, or named by %s): %w", poolerEnv, err), log.Close())
	}
	s.pooler = p
	go p.keep()
	return p.wait()
}

// start starts a process, and does nothing once there are to be none.
func (p *pooler) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.cmd = exec.Command(p.args[0], p.args[1:]...)
	p.cmd.Stderr = p.log
	return p.cmd.Start()
}

// keep starts the next one when one has ended.
func (p *pooler) keep() {
	defer close(p.done)
	for {
		p.mu.Lock()
		cmd, closed := p.cmd, p.closed
		p.mu.Unlock()
		_ = cmd.Wait() // how it ended is in its state
		if closed || p.over() {
			return
		}
		slog.Info("pgbouncer has ended", "how", cmd.ProcessState)
		<-time.After(again)
		if err := p.start(); err != nil {
			slog.Warn("pgbouncer does not start again", "err", err)
			return
		}
	}
}

func (p *pooler) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// wait until it takes connections.
func (p *pooler) wait() (err error) {
	for range 100 {
		var conn net.Conn
		if conn, err = net.DialTimeout("tcp", p.addr, time.Second); err == nil {
			return conn.Close()
		}
		<-time.After(50 * time.Millisecond)
	}
	return fmt.Errorf("pgbouncer takes no connection: %w", err)
}

func (p *pooler) close() {
	p.mu.Lock()
	p.closed = true
	_ = p.cmd.Process.Kill() // it may have ended
	p.mu.Unlock()
	<-p.done
	_ = p.log.Close()
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// PooledDSN is the members' way through the pooler, by the modes of pgx that bear one: nothing is prepared by name.
func (s *Site) PooledDSN() string {
	return "postgres://any@" + s.pooler.addr + "/" + s.Group + "?default_query_exec_mode=exec&sslmode=disable"
}

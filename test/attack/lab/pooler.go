package lab

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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

// pooler is a pgbouncer in front of the run's database. The faults of the way to the database are behind it.
type pooler struct {
	cmd  *exec.Cmd
	addr string
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
	args := []string{config}
	if os.Getuid() == 0 { // as root it refuses
		args = []string{"-u", "nobody", config}
	}
	p := &pooler{cmd: exec.Command(path, args...), addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("pgbouncer (in the path, or named by %s): %w", poolerEnv, err)
	}
	s.pooler = p
	return p.wait()
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
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()
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

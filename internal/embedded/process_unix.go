//go:build unix

package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/headrace/headrace/internal/backoff"
)

// nobody is the user that the server runs as when we are root.
const nobody = 65534

const (
	fastShutdown      = syscall.SIGINT
	immediateShutdown = syscall.SIGQUIT
)

func supported() error { return nil }

// asServer sets the user and the process group that cmd runs in.
func asServer(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
}

// ownByServer gives a path to the user that the server runs as.
func ownByServer(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Chown(path, nobody, nobody)
}

// lock takes the file's lock, which other processes respect, and waits for it until ctx ends.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) || !backoff.Wait(ctx, pollEvery) {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), context.Cause(ctx), f.Close())
		}
	}
}

// killAll ends a server and the processes that serve its sessions, all with SIGKILL. The server is held still first:
// list of children -> it forks one more -> that session lives on.
func killAll(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	family := append(children(pid), pid)
	var errs []error
	for _, pid := range family {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// children lists a process's children: from Linux's /proc, elsewhere from pgrep. Without either the list is empty; the
// sessions then end by themselves at their next wait.
func children(pid int) []int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		text, _ = exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output()
	}
	var pids []int
	for _, field := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// guardScript outlives us. Each line of its input is the process id of the server that runs now, 0 for none; the end of
// the input, which comes with our end whatever ended us, makes it stop that server and remove the directory.
const guardScript = `
trap '' INT TERM HUP
pid=0
while read -r line; do pid=$line; done
if [ "$pid" -gt 0 ] && kill -QUIT "$pid" 2>/dev/null; then
	tries=0
	while [ "$tries" -lt 100 ] && kill -0 "$pid" 2>/dev/null; do
		sleep 0.05
		tries=$((tries + 1))
	done
fi
cd /
rm -rf "$1" || { sleep 0.5; rm -rf "$1"; }
`

// guard is the running script.
type guard struct {
	cmd   *exec.Cmd
	input io.WriteCloser
}

// newGuard starts a guard, which outlives ctx: it ends by itself, after its work.
func newGuard(ctx context.Context, dir string) (*guard, error) {
	cmd := serverCommand(context.WithoutCancel(ctx), dir, "/bin/sh", "-c", guardScript, "headrace-postgres-guard", dir)
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &guard{cmd: cmd, input: input}, cmd.Start()
}

// watch tells the guard which process to stop in the end.
func (g *guard) watch(pid int) error {
	_, err := fmt.Fprintln(g.input, pid)
	return err
}

// close lets the guard do its work and waits for its end.
func (g *guard) close() error { return errors.Join(g.input.Close(), g.cmd.Wait()) }

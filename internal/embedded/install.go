package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"

	"github.com/headrace/headrace/internal/freeport"
)

// Version is the Postgres that [Postgres] starts.
const Version = embeddedpostgres.V18

// CacheEnv names the environment variable that moves the cache directory. As root the directory must be one that the
// user "nobody" can read.
const CacheEnv = "HEADRACE_CACHE"

// installation is what the servers of a machine share: the binaries, and an initialised cluster to copy.
type installation struct {
	bin      string
	template string
	secret   string // the file with the superuser's password
}

// install returns the machine's installation and makes it first when there is none. The lock lets one process make it
// while those that start at the same time wait; the kernel frees it when its holder dies, and what is half made has no
// "ready" file and is made again.
func install(ctx context.Context) (*installation, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	home, err := cacheDir()
	if err != nil {
		return nil, err
	}
	root := filepath.Join(home, "postgres-"+string(Version))
	unlock, err := lock(ctx, root+".lock")
	if err != nil {
		return nil, err
	}
	defer unlock()
	in := &installation{
		bin:      filepath.Join(root, "bin"),
		template: filepath.Join(root, "template"),
		secret:   filepath.Join(root, "secret"),
	}
	ready := filepath.Join(root, "ready")
	if _, err := os.Stat(ready); err == nil {
		return in, nil
	}
	if err := in.make(ctx, home, root); err != nil {
		return nil, err
	}
	return in, os.WriteFile(ready, nil, 0o644) // an empty marker
}

func (in *installation) make(ctx context.Context, home, root string) error {
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	if err := unpack(home, root); err != nil {
		return err
	}
	if err := readableByAll(root); err != nil {
		return err
	}
	return in.initialise(ctx)
}

// unpack has the library download the binaries (or find them in the cache), check and unpack them into root.
//
// The library does so only on the way to starting a server of its own, which as root can never succeed and gives no
// hold on the process. It is handed a data directory that claims to be initialised and is not, so its start ends right
// after the unpacking, with the one error that is expected here.
func unpack(home, root string) error {
	scratch, err := os.MkdirTemp("", "headrace-unpack-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	data := filepath.Join(scratch, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	major, _, _ := strings.Cut(string(Version), ".")
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(major), 0o600); err != nil {
		return err
	}
	err = startLibrary(embeddedpostgres.DefaultConfig().
		Version(Version).
		CachePath(home).
		BinariesPath(root).
		RuntimePath(filepath.Join(scratch, "run")).
		DataPath(data).
		Logger(io.Discard))
	if err == nil {
		return errors.New("the library started a server where none could start")
	}
	if !strings.HasPrefix(err.Error(), "could not start postgres") {
		return fmt.Errorf("installing postgres %s: %w", Version, err)
	}
	return nil
}

// startLibrary starts on a free port, for the library insists on one.
func startLibrary(cfg embeddedpostgres.Config) error {
	var err error
	for range portAttempts {
		port, portErr := freeport.Get()
		if portErr != nil {
			return portErr
		}
		err = embeddedpostgres.NewDatabase(cfg.Port(uint32(port))).Start()
		if err == nil || !strings.HasPrefix(err.Error(), "process already listening") {
			break
		}
	}
	return err
}

// initialise makes the cluster that each server starts as a copy of. Its superuser has a random password: a server
// listens on 127.0.0.1, where every user of the machine can reach it, and a superuser can run programs.
func (in *installation) initialise(ctx context.Context) error {
	if err := os.Mkdir(in.template, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(in.secret, []byte(rand.Text()), 0o600); err != nil {
		return err
	}
	for _, path := range []string{in.template, in.secret} {
		if err := ownByServer(path); err != nil {
			return err
		}
	}
	return run(ctx, in.bin, filepath.Join(in.bin, "initdb"), "-D", in.template, "-U", "postgres",
		"--pwfile="+in.secret, "--auth=password", "--no-sync", "--no-instructions",
		"--encoding=UTF8", "--locale-provider=builtin", "--locale=C.UTF-8")
}

func (in *installation) password() (string, error) {
	text, err := os.ReadFile(in.secret)
	return string(text), err
}

// cacheDir is where downloads are kept between runs. Root's own cache directory is closed to the user that the server
// runs as, so root uses the system's.
func cacheDir() (string, error) {
	dir := os.Getenv(CacheEnv)
	switch {
	case dir != "":
	case os.Geteuid() == 0:
		dir = "/var/cache/headrace"
	default:
		base, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(base, "headrace")
	}
	return dir, os.MkdirAll(dir, 0o755) // the server's user reads it
}

// readableByAll opens the tree to the server's user, whatever the umask of whoever unpacked it.
func readableByAll(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o444
		if mode&0o100 != 0 {
			mode |= 0o111
		}
		return os.Chmod(path, mode)
	})
}

// run executes a program as the server's user. Its output is part of the error.
func run(ctx context.Context, dir, program string, args ...string) error {
	out, err := serverCommand(ctx, dir, program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(program), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// serverCommand is a command that runs as the server's user, outside our process group: Ctrl-C in a terminal reaches
// the whole group, and the database must outlive the program's own graceful end.
func serverCommand(ctx context.Context, dir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	asServer(cmd)
	return cmd
}

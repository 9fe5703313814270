//go:build !unix

package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

var (
	fastShutdown      = os.Kill
	immediateShutdown = os.Kill
)

func supported() error {
	return fmt.Errorf("no embedded postgres on %s (use a server of your own): %w", runtime.GOOS, errors.ErrUnsupported)
}

func asServer(*exec.Cmd) {}

func ownByServer(string) error { return supported() }

func lock(context.Context, string) (func(), error) { return nil, supported() }

func killAll(int) error { return supported() }

// guard is never made here.
type guard struct{}

func newGuard(context.Context, string) (*guard, error) { return nil, supported() }

func (*guard) watch(int) error { return supported() }

func (*guard) close() error { return nil }

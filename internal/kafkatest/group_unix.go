//go:build unix

package kafkatest

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps a Ctrl-C in the terminal from the command: it ends after the tests, with its input.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

package lab

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// volumeSize is far more than a run writes. Of a volume in memory only what is used costs any.
const volumeSize = 4 << 30

// Volume is a file system of its own, in memory, that can be full. Only root can make one, and only on Linux.
type Volume struct{ dir string }

// mountVolume makes an empty one. Every user may write to it, as to the directory of temporary files.
func mountVolume() (*Volume, error) {
	dir, err := os.MkdirTemp("", "headrace-attack-volume-")
	if err != nil {
		return nil, err
	}
	v := &Volume{dir: dir}
	if err := execute("mount", "-t", "tmpfs", "-o", "mode=1777,"+sized(volumeSize), "headrace-attack", dir); err != nil {
		_ = os.Remove(dir)
		return nil, err
	}
	return v, nil
}

// Fill leaves room for so many bytes more than there are, until mend is called. What has its place can be written again.
func (v *Volume) Fill(spare int64) (mend func() error, err error) {
	const tries = 10 // what is written meanwhile makes the new size too small, which is refused
	for range tries {
		var now syscall.Statfs_t
		if err := syscall.Statfs(v.dir, &now); err != nil {
			return nil, err
		}
		used := int64(now.Blocks-now.Bfree) * int64(now.Bsize) //nolint:gosec,unconvert // far below; other systems have other types
		if err = v.resize(used + spare); err == nil {
			return func() error { return v.resize(volumeSize) }, nil
		}
	}
	return nil, err
}

func (v *Volume) resize(bytes int64) error {
	return execute("mount", "-o", "remount,"+sized(bytes), v.dir)
}

func sized(bytes int64) string { return "size=" + strconv.FormatInt(bytes, 10) }

// close is for when nobody uses it any more.
func (v *Volume) close() error {
	if err := execute("umount", v.dir); err != nil {
		return err
	}
	return os.Remove(v.dir)
}

func execute(program string, args ...string) error {
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, bytes.TrimSpace(out))
	}
	return nil
}

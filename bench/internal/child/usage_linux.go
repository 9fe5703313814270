package child

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is what a process has taken of the machine.
type Usage struct {
	CPU    time.Duration // user and system
	PeakMB float64       // the most memory that was resident at once
}

// ticks a second is what /proc counts in, on every architecture.
const ticks = 100

// usageOf reads /proc: a parent's rusage knows the child's end only, its start included, and its maximum resident size
// begins with the parent's own, in whose memory Go starts a child.
func usageOf(pid int) (u Usage, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	// The name, in parentheses, may contain anything; fields are counted from behind it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const userTime, systemTime = 11, 12
	if len(fields) <= systemTime {
		return u, fmt.Errorf("/proc/%d/stat is not as expected: %q", pid, stat)
	}
	for _, field := range fields[userTime : systemTime+1] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return u, err
		}
		u.CPU += time.Duration(n) * time.Second / ticks
	}
	u.PeakMB, err = peakMB(pid)
	return u, err
}

func peakMB(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseFloat(strings.Fields(kb)[0], 64)
			return n / 1024, err
		}
	}
	return 0, fmt.Errorf("no VmHWM of process %d", pid)
}

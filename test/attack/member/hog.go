package member

import (
	"runtime"
	"syscall"
)

// hog allocates until the process dies of it. It gets no more than a process of this size has anyway, so that the machine, and
// with it all others, has enough.
func hog() {
	const most = 1 << 30 // bytes of addresses
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: most, Max: most}); err != nil {
		panic(err) // or the whole machine would be without memory
	}
	for held := [][]byte(nil); ; {
		held = append(held, make([]byte, 64<<20))
		runtime.KeepAlive(held)
	}
}

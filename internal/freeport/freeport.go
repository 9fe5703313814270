// Package freeport finds ports for servers that a test or the demo starts, stops and starts again on the same port.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// The range lies below the one that kernels take the ports of outgoing connections from (32768 and up on Linux, 49152
// and up elsewhere). A port got by listening on port 0 lies within it: server stops -> somebody's outgoing connection
// gets its port -> server cannot come back.
const lowest, highest = 15_000, 32_000

const attempts = 200

// Get returns a port of 127.0.0.1 on which nobody listens now. Whoever starts a server on it tries again when the port
// turns out to be taken. Another process may be faster; and a port that was just let go of may stay taken for a moment:
// we listen -> another goroutine forks a child, which inherits the socket -> we close -> the child has not come to its
// exec, which closes its copy. Safe for concurrent use.
func Get() (int, error) { return Block(1, 1) }

// Block returns the first of n free ports that lie step apart.
func Block(n, step int) (int, error) {
	for range attempts {
		first := lowest + rand.IntN(highest-lowest-n*step)
		if allFree(first, n, step) {
			return first, nil
		}
	}
	return 0, errors.New("freeport: no free port found on 127.0.0.1")
}

func allFree(first, n, step int) bool {
	for i := range n {
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first+i*step)))
		if err != nil {
			return false
		}
		_ = ln.Close()
	}
	return true
}

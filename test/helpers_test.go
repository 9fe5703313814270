package e2e

import (
	"crypto/rand"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// logs pass what is logged on to the test's output and remember it. Safe for concurrent use.
type logs struct {
	out io.Writer

	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(b)
	return l.out.Write(b)
}

// lines is how many lines have this text.
func (l *logs) lines(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func contains(text, part string) bool { return strings.Contains(text, part) }

// noise does not compress.
func noise(t *testing.T, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	_, err := rand.Read(b)
	require.NoError(t, err)
	return b
}

package e2e

import (
	"os"
	"testing"

	"github.com/headrace/headrace/internal/pgtest"
)

// TestMain runs the tests, or, in a process that a test started, a member of a consumer group.
func TestMain(m *testing.M) {
	if text := os.Getenv(memberEnv); text != "" {
		os.Exit(runMember(text))
	}
	pgtest.Main(m)
}

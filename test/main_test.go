package e2e

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/headrace/headrace/internal/pgtest"
)

// TestMain runs the tests, or, in a process that a test started, a member of a consumer group.
func TestMain(m *testing.M) {
	if text := os.Getenv(memberEnv); text != "" {
		os.Exit(runMember(text))
	}
	// Sarama's metrics have a goroutine that nothing ends.
	pgtest.Main(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

package e2e

import (
	"flag"
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
	// What these tests wait for is a session that times out, or a member that joins, more than the processor.
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	// Sarama's metrics have a goroutine that nothing ends.
	pgtest.Main(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

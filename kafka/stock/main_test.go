package stock_test

import (
	"testing"

	"github.com/headrace/headrace/internal/pgtest"
	"go.uber.org/goleak"
)

// Sarama's metrics have a goroutine that nothing ends.
func TestMain(m *testing.M) {
	pgtest.Main(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

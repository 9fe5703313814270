// Package compose tests the stack of compose.yaml as far as that goes without a container engine: the file itself, and
// the real broker, database, proxy and rule checker under the configuration that it gives them.
package compose

import (
	"testing"

	"github.com/headrace/headrace/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

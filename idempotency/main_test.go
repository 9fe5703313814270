package idempotency_test

import (
	"os"
	"testing"

	"github.com/headrace/headrace/internal/pgtest"
)

func TestMain(m *testing.M) {
	if dsn := os.Getenv(serveEnv); dsn != "" {
		os.Exit(serveAsProcess(dsn))
	}
	pgtest.Main(m)
}

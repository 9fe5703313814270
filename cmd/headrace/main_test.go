package main

import (
	"os"
	"testing"

	"github.com/headrace/headrace/internal/pgtest"
)

// runVariable tells the test's binary to be the command: a test that kills it needs a process of its own.
const runVariable = "HEADRACE_TEST_RUN_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(runVariable) != "" {
		main()
	}
	pgtest.Main(m)
}

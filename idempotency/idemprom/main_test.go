package idemprom_test

import (
	"testing"

	"github.com/headrace/headrace/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

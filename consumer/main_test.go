package consumer

import (
	"fmt"
	"os"
	"testing"

	"github.com/headrace/headrace/internal/pgtest"
)

func TestMain(m *testing.M) {
	postings := os.Getenv(brokerOnly)
	if postings == "" {
		pgtest.Main(m)
		return
	}
	if err := serveBroker(postings); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

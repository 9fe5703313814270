package dlq_test

import (
	"errors"
	"fmt"

	"github.com/headrace/headrace/dlq"
)

// An error's text is for people to read later, and in more places than the application's log.
func ExampleMessage() {
	fmt.Println(dlq.Message(errors.New("dial postgres://app:s3cr3t@db:5432/ledger: refused")))
	// Output: dial postgres://***@db:5432/ledger: refused
}

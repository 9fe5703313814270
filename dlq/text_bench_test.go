package dlq

import (
	"errors"
	"strings"
	"testing"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// BenchmarkEnvelope is what a letter costs before it is written, most of it the search for secrets.
func BenchmarkEnvelope(b *testing.B) {
	w, r := &Writer{}, &record.Record{Topic: "orders"}
	for name, err := range map[string]error{
		"short": errors.New("no account for order 17 (SQLSTATE 23503)"),
		"long":  errors.New(strings.Repeat("no account for order 17; ", 200)),
		"panic": &fault.PanicError{Value: "boom", Stack: []byte(strings.Repeat("main.apply(0xc000)\n\t/app/main.go:42\n", 100))},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.envelope(Letter{Record: r, Reason: Permanent, Err: err})
			}
		})
	}
}

package downstream_test

import (
	"context"
	"testing"

	"github.com/headrace/headrace/fault"
)

func BenchmarkDo(b *testing.B) {
	d := payments(b)
	ctx := b.Context()
	op := func(context.Context) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Do(ctx, op); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBeginEnd(b *testing.B) {
	d := payments(b)
	b.ReportAllocs()
	for b.Loop() {
		c, err := d.Begin(limit)
		if err != nil {
			b.Fatal(err)
		}
		c.End(false, fault.Fault{})
	}
}

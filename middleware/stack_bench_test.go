package middleware_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

// settler is an Owner that lets everything settle.
type settler struct{}

func (settler) Settle(*record.Record, record.Outcome) bool { return true }
func (settler) GiveBack([]*record.Record)                  {}
func (settler) Wait([]*record.Record)                      {}
func (settler) Resume([]*record.Record) bool               { return true }

// BenchmarkStack takes messages of healthy records through the stack of a route that does not call; the inbox only runs
// the handler. ns and allocations are for one message, of which a handler's own message is one a record.
func BenchmarkStack(b *testing.B) {
	for _, n := range []int{1, 500} {
		b.Run(fmt.Sprintf("%dRecords", n), func(b *testing.B) {
			in := effects(func(ctx context.Context, rs []*record.Record, work dedup.Work) {
				for _, r := range rs {
					if err := work.(dedup.Apply)(ctx, nil, r); err == nil {
						r.Settle(record.Effected)
					}
				}
			})
			layers, err := middleware.Stack(&middleware.Route{
				Name: "ledger", Group: "billing", Inbox: in, Graves: &fakeInbox{}, DeadLetters: newTopic(), Batches: true,
				Hooks: &record.Hooks{},
			})
			if err != nil {
				b.Fatal(err)
			}
			h, soft := compose(layers, nothing), make(chan struct{})
			rs := make([]*record.Record, n)
			slab := make([]record.Record, n)
			b.ReportAllocs()
			for b.Loop() {
				for i := range slab {
					slab[i] = record.Record{Topic: "orders", Offset: int64(i)}
					slab[i].Bind(settler{}, soft, "")
					rs[i] = &slab[i]
				}
				if _, err := h(record.NewMessage(b.Context(), rs)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

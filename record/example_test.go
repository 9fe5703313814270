package record_test

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/record"
)

// A middleware before the stack sees messages of many records. One that knows of them looks at each, and hands the
// message on: what becomes of a record is said by the layers inside.
func ExampleRecords() {
	tombstones := func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			rs, err := record.Records(msg)
			if err != nil {
				return nil, err
			}
			for _, r := range rs {
				if r.Value == nil {
					fmt.Println("a tombstone at", r.Offset)
				}
			}
			return next(msg)
		}
	}

	rs := bound(newOwner(), 3)
	rs[1].Value = nil
	handler := tombstones(func(msg *message.Message) ([]*message.Message, error) {
		fmt.Println("handled", msg.UUID)
		return nil, nil
	})
	_, _ = handler(record.NewMessage(context.Background(), rs))
	// Output:
	// a tombstone at 1
	// handled orders/3/0-2
}

// The first Settle wins: only then may the offset move.
func ExampleRecord_Settle() {
	r := &record.Record{Topic: "orders", Offset: 7}
	r.Bind(newOwner(), nil, "")
	fmt.Println(r.Settle(record.Effected), r.Settle(record.Dead), r.Outcome())
	// Output: true false effected
}

package consumer

import (
	"math"
	"strconv"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/record"
)

// settler is an owner that lets everything settle.
type settler struct{}

var _ record.Owner = settler{}

func (settler) Settle(*record.Record, record.Outcome) bool { return true }
func (settler) GiveBack([]*record.Record)                  {}
func (settler) Wait([]*record.Record)                      {}
func (settler) Resume([]*record.Record) bool               { return true }

// TestPathAllocations holds what a record may allocate between the Source and its handler, metrics included. Of the eight,
// six are encoding/json's and the event, one is the identity's text, one the handler's context; what a message costs is
// shared by its records.
func TestPathAllocations(t *testing.T) {
	for _, c := range []struct {
		records int
		most    float64 // a message
	}{
		{records: 1, most: 8 + 26},
		{records: 500, most: 8*500 + 50},
	} {
		t.Run(strconv.Itoa(c.records)+"Records", func(t *testing.T) {
			_, rt, _ := newStack(t, []string{"127.0.0.1:1"}, math.MaxInt, Options{})
			layers, err := middleware.Stack(rt)
			require.NoError(t, err)
			h := message.HandlerFunc(func(*message.Message) ([]*message.Message, error) { return nil, nil })
			for i := len(layers) - 1; i >= 0; i-- {
				h = layers[i](h)
			}
			fresh, rs := postings(c.records)
			n := testing.AllocsPerRun(20, func() {
				fresh()
				if _, err := h(record.NewMessage(t.Context(), rs)); err != nil || len(record.Remaining(rs)) > 0 {
					t.Errorf("not settled: %v", err)
				}
			})
			require.LessOrEqual(t, n, c.most)
			t.Logf("%.0f allocations a message, %.2f a record", n, n/float64(c.records))
		})
	}
}

// postings gives n records, and what makes them a new delivery without an allocation.
func postings(n int) (fresh func(), rs []*record.Record) {
	slab, soft := make([]record.Record, n), make(chan struct{})
	rs = make([]*record.Record, n)
	values, headers := make([][]byte, n), make([][]record.Header, n)
	for i := range rs {
		rs[i], values[i] = &slab[i], postingValue(i)
		headers[i] = []record.Header{{Key: record.UUIDHeader, Value: []byte(uuid.NewString())}}
	}
	return func() {
		for i := range slab {
			slab[i] = record.Record{Topic: "orders", Offset: int64(i), Value: values[i], Headers: headers[i]}
			slab[i].Bind(settler{}, soft, "")
		}
	}, rs
}

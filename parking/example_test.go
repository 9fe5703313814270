package parking_test

import (
	"fmt"
	"time"

	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// How long a record is tried, and that it comes back as it was.
func Example() {
	p := parking.Policy{Base: time.Minute, Cap: 10 * time.Minute, Rounds: 6}
	if err := p.Validate(); err != nil {
		fmt.Println(err)
	}
	for round := 1; round <= p.Rounds; round++ {
		fmt.Print(p.Delay(round), " ")
	}
	fmt.Println("in all", p.Longest())

	first := &record.Record{Topic: "orders", Partition: 3, Offset: 4711, Key: []byte("customer-7"), Value: []byte(`{"total": 12}`)}
	later := &record.Record{Topic: "orders", Partition: 3, Offset: 4720, Key: []byte("customer-7")}
	fmt.Println("the later one waits behind it:", parking.KeyID(first, true) == parking.KeyID(later, true))

	back, err := parking.Decode(parking.Encode(first))
	fmt.Printf("%s/%d/%d %s %v\n", back.Topic, back.Partition, back.Offset, back.Value, err)
	// Output:
	// 1m0s 2m0s 4m0s 8m0s 10m0s 10m0s in all 35m0s
	// the later one waits behind it: true
	// orders/3/4711 {"total": 12} <nil>
}

// Package load is what every contender consumes, and what its effects must add up to: topics full of postings, the tables
// that they are posted to, and the sums.
package load

import (
	"encoding/json"
	"strconv"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
)

// IDHeader carries a record's identity, where Watermill's own marshaler puts it. Without it the stock inbox would take
// every record for the same one.
const IDHeader = "_watermill_message_uuid"

// Posting is the event of every bench: about 100 bytes of JSON.
type Posting struct {
	Account int   `json:"account"`
	Amount  int64 `json:"amount"`
	// Order is what is charged, where a service is called.
	Order int `json:"order,omitempty"`
	// Poison says that the posting can never succeed.
	Poison bool `json:"poison,omitempty"`
	// Fails says that it fails as if it might succeed the next time, and Hangs that its handler does not return by itself.
	Fails bool `json:"fails,omitempty"`
	Hangs bool `json:"hangs,omitempty"`
	// Due is when the record was to be produced, in nanoseconds since 1970. What the producer is late by counts, so that
	// one that is held up does not hide what its records would have waited.
	Due int64  `json:"due,omitempty"`
	Pad string `json:"pad"`
}

const pad = "0123456789012345678901234567890123456789012345"

// Record is the posting as it is produced. The key decides the partition and what stays in order. The nil id is none.
func (p Posting) Record(topic string, key int, id uuid.UUID) *kgo.Record {
	p.Pad = pad
	value, err := json.Marshal(p)
	if err != nil {
		panic(err) // numbers and a string
	}
	r := &kgo.Record{Topic: topic, Key: []byte(strconv.Itoa(key)), Value: value}
	if id != uuid.Nil {
		r.Headers = []kgo.RecordHeader{{Key: IDHeader, Value: []byte(id.String())}}
	}
	return r
}

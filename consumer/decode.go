package consumer

import (
	"encoding/json"
	"errors"

	"github.com/headrace/headrace/record"
)

// Decoder turns a record's value into the route's type: into is a pointer to a fresh T. It runs once a delivery,
// before any transaction; an error or a panic is the record's, which goes to the dead letter topic as undecodable.
// It must not keep or change the record. It has no deadline but MaxPollInterval, as a handler that ignores its context:
// one that asks somebody, a schema registry, brings a time-out of its own.
type Decoder func(r *record.Record, into any) error

// errTombstone is what a nil value is to a decoder that wants bytes.
var errTombstone = errors.New("the value is nil (a tombstone)")

// JSON gives what encoding/json gives, value or error, in less time. It is the default. A route of []byte or json.RawMessage
// gets the value as it is.
func JSON(r *record.Record, into any) error {
	switch into := into.(type) {
	case *[]byte:
		*into = r.Value
		return nil
	case *json.RawMessage:
		*into = r.Value
		return nil
	}
	if r.Value == nil {
		return errTombstone
	}
	return unmarshal(r.Value, into)
}

// Values makes a Decoder of a function that needs the bytes of the value alone, as the Unmarshal functions of most
// formats do, and those of faster JSON libraries: docs/path.md compares some. A nil value never reaches it: a tombstone is undecodable unless the route has a Decoder that knows it.
func Values(unmarshal func(data []byte, into any) error) Decoder {
	return func(r *record.Record, into any) error {
		if r.Value == nil {
			return errTombstone
		}
		return unmarshal(r.Value, into)
	}
}

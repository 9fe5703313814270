package dlq

import "github.com/headrace/headrace/record"

func foreign(r *record.Record) (Format, Envelope, []record.Header) {
	return FormatUnknown, Envelope{Origin: Coordinates{Partition: -1, Offset: -1}}, r.Headers
}

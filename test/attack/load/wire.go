package load

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ending is how records are written.
type ending byte

const (
	plain  ending = iota // without a transaction
	commit               // in one that is committed
	abort                // in one that is aborted: nobody may ever see them
)

// encode writes records down for a client of another language, which answers each batch with a line:
//
//	ending | count | topic, key, value, timestamp, headers: count, then name and value each
//
// Numbers are big-endian, of 4 bytes, the timestamp (ms, -1 is now) of 8. Bytes have their length before them, nil -1.
func encode(how ending, records []*kgo.Record) []byte {
	buf := []byte{byte(how)}
	buf = appendNumber(buf, len(records))
	for _, r := range records {
		buf = appendBytes(buf, []byte(r.Topic))
		buf = appendBytes(buf, r.Key)
		buf = appendBytes(buf, r.Value)
		at := int64(-1)
		if !r.Timestamp.IsZero() {
			at = r.Timestamp.UnixMilli()
		}
		buf = binary.BigEndian.AppendUint64(buf, uint64(at))
		buf = appendNumber(buf, len(r.Headers))
		for _, h := range r.Headers {
			buf = appendBytes(buf, []byte(h.Key))
			buf = appendBytes(buf, h.Value)
		}
	}
	return buf
}

func appendNumber(buf []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(buf, uint32(int32(n)))
}

func appendBytes(buf, b []byte) []byte {
	if b == nil {
		return appendNumber(buf, -1)
	}
	return append(appendNumber(buf, len(b)), b...)
}

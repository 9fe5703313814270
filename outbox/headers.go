package outbox

import (
	"encoding/binary"
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/record"
)

var errHeaders = errors.New("headers are damaged")

// encodeHeaders puts names and values one after the other, each behind its length plus one; 0 is a nil value, which is
// another thing than an empty one.
func encodeHeaders(headers []record.Header) []byte {
	out := []byte{} // the column is not null
	for _, h := range headers {
		out = appendText(out, h.Key)
		out = appendBytes(out, h.Value, h.Value == nil)
	}
	return out
}

func appendText(out []byte, s string) []byte {
	return append(binary.AppendUvarint(out, uint64(len(s))+1), s...)
}

func appendBytes(out, b []byte, null bool) []byte {
	if null {
		return append(out, 0)
	}
	return append(binary.AppendUvarint(out, uint64(len(b))+1), b...)
}

// decodeHeaders appends to headers what encodeHeaders has made. The values are parts of b.
func decodeHeaders(headers []kgo.RecordHeader, b []byte) ([]kgo.RecordHeader, error) {
	for len(b) > 0 {
		name, rest, ok := cutBytes(b)
		if !ok || name == nil {
			return nil, errHeaders
		}
		value, rest, ok := cutBytes(rest)
		if !ok {
			return nil, errHeaders
		}
		headers = append(headers, kgo.RecordHeader{Key: string(name), Value: value})
		b = rest
	}
	return headers, nil
}

func cutBytes(b []byte) (value, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return nil, nil, false
	}
	b = b[size:]
	switch {
	case n == 0:
		return nil, b, true
	case n-1 > uint64(len(b)):
		return nil, nil, false
	}
	return b[: n-1 : n-1], b[n-1:], true
}

package outbox

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/record"
)

func TestHeaders(t *testing.T) {
	t.Parallel()
	for _, headers := range [][]record.Header{
		nil,
		{{Key: "", Value: nil}},
		{{Key: "a", Value: []byte{}}, {Key: "a", Value: nil}, {Key: "b", Value: make([]byte, 300)}},
	} {
		encoded := encodeHeaders(headers)
		require.NotNil(t, encoded)
		got, err := decodeHeaders(nil, encoded)
		require.NoError(t, err)
		require.Equal(t, headers, ours(got))
	}
	for _, bad := range []string{"\x00\x01", "\x02", "\x05a", "\x02a", "\x02a\xff", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a"} {
		_, err := decodeHeaders(nil, []byte(bad))
		require.ErrorIs(t, err, errHeaders, "%q", bad)
	}
}

func FuzzHeaders(f *testing.F) {
	f.Add([]byte("\x02a\x00\x01\x01"))
	f.Add([]byte("\x02a\x02b"))
	f.Fuzz(func(t *testing.T, b []byte) {
		headers, err := decodeHeaders(nil, b)
		if err != nil {
			return
		}
		again, err := decodeHeaders(nil, encodeHeaders(ours(headers)))
		require.NoError(t, err)
		require.Equal(t, headers, again)
	})
}

func ours(headers []kgo.RecordHeader) (hs []record.Header) {
	for _, h := range headers {
		hs = append(hs, record.Header{Key: h.Key, Value: h.Value})
	}
	return hs
}

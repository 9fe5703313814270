package dlq_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
)

// FuzzParseCoordinates wants what is read to be what String writes, and never what nobody could have written.
func FuzzParseCoordinates(f *testing.F) {
	for _, s := range []string{"", "orders/3/4711", "a/b/1/2", "orders/-1/2", "orders/2147483648/1", "/1/1", "orders/01/+1", "orders/1/9223372036854775808"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := dlq.ParseCoordinates(s)
		if err != nil {
			return
		}
		require.NotEmpty(t, c.Topic)
		require.True(t, c.Partition >= 0 && c.Offset >= 0)
		again, err := dlq.ParseCoordinates(c.String())
		require.NoError(t, err)
		require.Equal(t, c, again)
	})
}

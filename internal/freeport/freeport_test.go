package freeport

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBlock(t *testing.T) {
	t.Parallel()

	t.Run("EveryPortOfItCanBeListenedOn", func(t *testing.T) {
		t.Parallel()
		first, err := Block(3, 10)
		require.NoError(t, err)
		for i := range 3 {
			ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first+10*i)))
			require.NoError(t, err)
			require.NoError(t, ln.Close())
		}
	})

	t.Run("StaysBelowThePortsOfOutgoingConnections", func(t *testing.T) {
		t.Parallel()
		for range 50 {
			port, err := Get()
			require.NoError(t, err)
			require.Less(t, port, 32_768)
			require.GreaterOrEqual(t, port, lowest)
		}
	})

	t.Run("APortInUseIsNotFree", func(t *testing.T) {
		t.Parallel()
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { require.NoError(t, ln.Close()) }()
		require.False(t, allFree(ln.Addr().(*net.TCPAddr).Port, 1, 1))
	})
}

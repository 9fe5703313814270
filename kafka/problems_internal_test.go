package kafka

import (
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Brokers that refused connections were told as a missing permission.
func TestGroupHint(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"see that the brokers are up":  fmt.Errorf("unable to dial: %w", &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}),
		"this user may Read the group": kerr.GroupAuthorizationFailed,
	} {
		require.Contains(t, SourceConfig{}.groupHint(err), want)
	}
}

package consumer

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNotTaken_IsToldOnceOfEachNameThatNobodyHas(t *testing.T) {
	t.Parallel()
	n := newNotTaken([]spec{{name: "charge", replay: "orders.billing.replay"}, {name: "ship", replay: "parcels.billing.replay"}})
	require.False(t, n.first("orders.billing.replay", "charge"))
	require.True(t, n.first("orders.billing.replay", "chrage"))
	require.False(t, n.first("orders.billing.replay", "chrage"))
	require.True(t, n.first("parcels.billing.replay", "charge"), "it does not read that topic")
	for i := range 2 * maxStrangers {
		n.first("orders.billing.replay", fmt.Sprint(i))
	}
	require.Len(t, n.known, maxStrangers)
	require.False(t, n.first("orders.billing.replay", "charge"))
}

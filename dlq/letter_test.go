package dlq_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
)

func TestReplayTopic_OfAnyGroupIsATopicsName(t *testing.T) {
	t.Parallel()
	for group, want := range map[string]string{
		"billing":     "orders.billing.replay",
		"eu.b-i_ll.1": "orders.eu.b-i_ll.1.replay",
		"eu/billing":  "orders.eu_billing-6f1a9e3a.replay",
		"eu:billing":  "orders.eu_billing-e7115fbf.replay",
	} {
		require.Equal(t, want, dlq.ReplayTopic("orders", group))
	}
}

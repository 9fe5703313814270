package fault_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
)

// What a failure says of the dependency that was called, as a breaker counts it.
func TestEvidence(t *testing.T) {
	t.Parallel()
	const nothing, up, down = fault.SaysNothing, fault.SaysUp, fault.SaysDown
	for _, r := range []struct {
		name string
		err  error
		want fault.Evidence
	}{
		{"NotFound", &fault.StatusError{Code: 404}, up},
		{"ABusinessRule", errors.New("amount is negative"), up},
		{"AVerb", fault.Permanent(errPlain), up},
		{"InProgress", &fault.StatusError{Code: 409, Keyed: true}, up},
		{"TheKeyOfAnotherBody", &fault.StatusError{Code: 422, Keyed: true}, up},
		{"Throttled", &fault.StatusError{Code: 429}, down},
		{"BadGateway", &fault.StatusError{Code: 502}, down},
		{"OurCredentials", &fault.StatusError{Code: 401, Dependency: "payments"}, down},
		{"OurCredentialsToAHost", &fault.StatusError{Code: 401, Dependency: "10.0.0.7:443"}, down},
		{"OurCredentialsToNobodyKnowsWhom", &fault.StatusError{Code: 401}, down},
		{"Transient", fault.Transient(errPlain), down},
		{"Ambiguous", fault.Ambiguous(errPlain), down},
		{"ItSaysSo", fault.Unavailable(errPlain, "payments"), down},
		{"AnotherIsDown", fault.Unavailable(errPlain, "ledger"), nothing},
		{"OurDatabaseIsDown", pg("57P01"), nothing},
		{"OurRefusal", &fault.RefusedError{Dependency: "payments", Reason: fault.ErrBreakerOpen}, nothing},
		{"OurRefusalOfAnother", &fault.RefusedError{Dependency: "ledger", Reason: fault.ErrBulkheadFull}, nothing},
		{"AnUnknownRefusal", &fault.RefusedError{Dependency: "payments", Reason: errPlain}, nothing},
		{"NoTokens", fault.ErrNoRetryTokens, nothing},
		{"NoTime", fault.ErrNoTime, nothing},
		{"APanic", fault.Recovered("no owner"), nothing},
		{"ASkip", fault.Skip("a test order"), nothing},
		{"Parked", fault.Park(errPlain, time.Hour), nothing},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			f := new(fault.Classifier).ClassifyCall(t.Context(), r.err)
			require.Equal(t, r.want, f.Evidence("payments"), f)
		})
	}
	require.Equal(t, nothing, fault.Fault{Class: fault.ClassCancelled}.Evidence("payments"))
	require.Equal(t, nothing, fault.Fault{Class: fault.Class(9)}.Evidence("payments"))
}

func TestNoTimeIsNoOutage(t *testing.T) {
	t.Parallel()
	f := new(fault.Classifier).ClassifyCall(t.Context(), fault.ErrNoTime)
	require.Equal(t, fault.Fault{Class: fault.ClassTransient, Rule: "no time left"}, f)
	require.True(t, f.Refused())
}

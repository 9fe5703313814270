package dedup

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
)

func TestOfHandler(t *testing.T) {
	t.Parallel()
	status := &fault.StatusError{Code: 500}
	for name, tc := range map[string]struct {
		err  error
		v    verdict
		want fault.Class
	}{
		"WhatIsAmbiguousElsewhereIsUndone":         {status, undone, fault.ClassTransient},
		"DeadlineIsTransientWhateverItIsElsewhere": {errBoom, cutOff, fault.ClassTransient},
		"VerbBeatsTheDeadline":                     {fault.Permanent(errBoom), cutOff, fault.ClassPermanent},
		"VerbStandsUnderEveryName":                 {fault.Say(status, fault.Fault{Class: fault.ClassAmbiguous, Rule: "payment sent"}), undone, fault.ClassAmbiguous},
		"ParkStands":                               {fault.Park(status, 1), cutOff, fault.ClassTransient},
		"PanicIsNoVerb":                            {fault.Recovered(errBoom), cutOff, fault.ClassTransient},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			class, meant := ofHandler(context.Background(), builtIn, tc.err, tc.v)
			require.Equal(t, tc.want, class)
			require.Equal(t, tc.want, builtIn.Classify(context.Background(), meant).Class, "whoever looks next finds the same")
			require.ErrorIs(t, meant, tc.err)
		})
	}
}

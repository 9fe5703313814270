package fault_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
)

// row is one input of the classifier. Call is what it means in a call out, if that differs.
type row struct {
	name  string
	err   error
	class fault.Class
	rule  string
	dep   string
	call  fault.Class
	split bool // call counts
}

// check judges each row bare, under wraps, in a Join with errors that say nothing, and joined by several %w: the
// meaning must survive all of it.
func check(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			require.Error(t, r.err)
			for _, err := range dressed(r.err) {
				requireFault(t, r, r.class, new(fault.Classifier).Classify(context.Background(), err))
				call := r.class
				if r.split {
					call = r.call
				}
				requireFault(t, r, call, new(fault.Classifier).ClassifyCall(context.Background(), err))
			}
		})
	}
}

func requireFault(t *testing.T, r row, class fault.Class, got fault.Fault) {
	t.Helper()
	require.Equal(t, class.String(), got.Class.String(), "%T %v by %q", r.err, r.err, got.Rule)
	require.Equal(t, r.dep, got.Dependency)
	require.Equal(t, r.rule, got.Rule)
}

var errPlain = errors.New("says nothing")

func dressed(err error) []error {
	return []error{
		err,
		fmt.Errorf("a: %w", fmt.Errorf("b: %w", err)),
		errors.Join(errPlain, err),
		fmt.Errorf("%w: %w", errPlain, err),
		fmt.Errorf("c: %w", errors.Join(fmt.Errorf("d: %w", errors.Join(err)), errPlain)),
	}
}

package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/headrace/headrace/fault"
)

// leaves are the errors from which the fuzzer grows trees; arg makes several of one kind.
var leaves = []func(arg byte, text string) error{
	func(byte, string) error { return errPlain },
	func(byte, string) error { return io.EOF },
	func(byte, string) error { return nil },
	func(byte, string) error { return context.Canceled },
	func(byte, string) error { return context.DeadlineExceeded },
	func(_ byte, text string) error { return pg(text) },
	func(byte, string) error { return (*pgconn.PgError)(nil) },
	func(byte, string) error { return (*url.Error)(nil) },
	func(byte, string) error { return &pgconn.ConnectError{} },
	func(arg byte, _ string) error { return kerr.ErrorForCode(int16(arg)) },
	func(arg byte, text string) error {
		return &fault.StatusError{Code: 4 * int(arg), Method: text, Keyed: arg%2 == 0}
	},
	func(_ byte, text string) error { return fault.Skip(text) },
	func(arg byte, text string) error { return &fault.PanicError{Value: text, Stack: []byte{arg}} },
	func(_ byte, text string) error {
		return &fault.RefusedError{Dependency: text, Reason: fault.ErrBreakerOpen}
	},
	func(_ byte, text string) error { return &net.OpError{Op: text} },
}

// wraps put something around an error.
var wraps = []func(err error, arg byte, text string) error{
	func(err error, _ byte, text string) error { return fmt.Errorf("%s: %w", text, err) },
	func(err error, _ byte, _ string) error { return errors.Join(err, errPlain) },
	func(err error, _ byte, _ string) error { return manyError{errPlain, nil, err} },
	func(err error, _ byte, text string) error { return &url.Error{Op: text, URL: text, Err: err} },
	func(err error, _ byte, _ string) error { return &net.OpError{Op: "read", Err: err} },
	func(err error, arg byte, _ string) error { return fault.RetryAfter(err, time.Duration(int8(arg))) },
	func(err error, arg byte, _ string) error { return fault.Park(err, time.Duration(int8(arg))) },
	func(err error, arg byte, text string) error {
		return fault.Say(err, fault.Fault{Class: fault.Class(arg), Dependency: text, RetryAfter: -1})
	},
	func(err error, _ byte, _ string) error { return ioError{false, err} },
	func(err error, _ byte, text string) error { return &fault.RefusedError{Dependency: text, Reason: err} },
}

// grow reads pairs of bytes as a program on a stack of errors.
func grow(program []byte, text string) error {
	stack := []error{errPlain}
	for i := 0; i+1 < len(program) && i < 200; i += 2 {
		op, arg, top := int(program[i]), program[i+1], len(stack)-1
		switch n := op % (len(leaves) + len(wraps) + 1); {
		case n < len(leaves):
			stack = append(stack, leaves[n](arg, text))
		case n < len(leaves)+len(wraps):
			stack[top] = wraps[n-len(leaves)](stack[top], arg, text)
		default:
			from := max(0, top-int(arg%4))
			stack = append(stack[:from:from], errors.Join(stack[from:]...))
		}
	}
	return errors.Join(stack...)
}

func FuzzClassify(f *testing.F) {
	for op := range len(leaves) + len(wraps) + 1 {
		f.Add([]byte{byte(op), 1}, "40001")
		f.Add([]byte{5, 3, byte(op), 2, 26, 3, byte(op), 255}, "Post")
		f.Add([]byte{byte(op), 0, 18, 0, byte(op), 100}, "http://%zz")
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	f.Fuzz(func(t *testing.T, program []byte, text string) {
		err := grow(program, text)
		var c fault.Classifier
		for _, judge := range []func(context.Context, error) fault.Fault{c.Classify, c.ClassifyCall} {
			got := judge(t.Context(), err)
			require.GreaterOrEqual(t, got.RetryAfter, time.Duration(0))
			require.Equal(t, got.Class == fault.ClassUnavailable, got.Dependency != "", "%+v", got)
			require.Equal(t, got, judge(t.Context(), fmt.Errorf("a: %w", err)), "a wrap changes nothing")
			require.Equal(t, got, judge(t.Context(), err), "the same answer twice")
			require.Equal(t, fault.ClassCancelled, judge(ended, err).Class)
		}
		skip, ok := fault.AsSkip(err)
		require.Equal(t, ok, skip != nil)
		park, ok := fault.AsPark(err)
		require.Equal(t, ok, park != nil)
	})
}

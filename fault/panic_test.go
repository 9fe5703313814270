package fault_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
)

// caught runs f as the engine does.
func caught(f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fault.Recovered(v)
		}
	}()
	f()
	return nil
}

func TestPanic(t *testing.T) {
	t.Parallel()
	check(t, []row{
		{name: "OfAText", err: caught(func() { panic("no account") }), class: fault.ClassPermanent, rule: "panic"},
		{name: "OfNil", err: caught(func() { panic(nil) }), class: fault.ClassPermanent, rule: "panic"}, //nolint:govet // that is the test
		{name: "OfAVerb", err: caught(func() { panic(fault.Transient(errPlain)) }), class: fault.ClassPermanent, rule: "panic"},
		{name: "OfTheRuntime", err: caught(func() { _ = indexed(nil) }), class: fault.ClassPermanent, rule: "panic"},
		{name: "WithAVerbAroundIt", err: fault.Transient(caught(func() { panic(1) })), class: fault.ClassTransient, rule: "verb transient"},
	})

	t.Run("TheErrorThatWasPanickedWithIsFound", func(t *testing.T) {
		t.Parallel()
		require.ErrorIs(t, caught(func() { panic(fmt.Errorf("a: %w", errPlain)) }), errPlain)
		require.NoError(t, errors.Unwrap(caught(func() { panic("text") })))
	})
	t.Run("PanickedAgainItStaysTheSame", func(t *testing.T) {
		t.Parallel()
		inner := caught(func() { panic("first") })
		require.Same(t, inner, caught(func() { panic(inner) }))
	})
	t.Run("TheTextIsShortAndNoPayload", func(t *testing.T) {
		t.Parallel()
		type order struct{ Card string }
		require.EqualError(t, caught(func() { panic(order{"4111"}) }), "panic: value of type fault_test.order")
		require.EqualError(t, caught(func() { panic([]byte("4111")) }), "panic: value of type []uint8")
		require.EqualError(t, caught(func() { panic(7) }), "panic: 7")
		long := caught(func() { panic(strings.Repeat("ü", 4000)) }).Error()
		require.LessOrEqual(t, len(long), 520)
		require.True(t, utf8.ValidString(long))
	})
}

func indexed(s []int) int { return s[3] }

func deep(n int) {
	if n == 0 {
		panic("deep")
	}
	deep(n - 1)
}

func TestPanicStack(t *testing.T) {
	t.Parallel()
	stackOf := func(f func()) string {
		var p *fault.PanicError
		require.ErrorAs(t, caught(f), &p)
		return string(p.Stack)
	}
	t.Run("BeginsWhereItPanicked", func(t *testing.T) {
		t.Parallel()
		stack := stackOf(func() { deep(0) })
		require.True(t, strings.HasPrefix(stack, "github.com/headrace/headrace/fault_test.deep\n\t"), stack)
		require.Contains(t, stack, "panic_test.go:")
	})
	t.Run("HasNoFramesOfTheRuntime", func(t *testing.T) {
		t.Parallel()
		stack := stackOf(func() { _ = indexed(nil) })
		require.True(t, strings.HasPrefix(stack, "github.com/headrace/headrace/fault_test.indexed\n\t"), stack)
		require.NotContains(t, stack, "runtime.goPanicIndex")
		require.NotContains(t, stack, "runtime.gopanic")
	})
	t.Run("IsAtMostFourKiBOfWholeLines", func(t *testing.T) {
		t.Parallel()
		stack := stackOf(func() { deep(500) })
		require.Greater(t, len(stack), 2<<10)
		require.LessOrEqual(t, len(stack), 4<<10)
		require.True(t, strings.HasSuffix(stack, "\n"))
		require.Zero(t, strings.Count(stack, "\n")%2)
	})
}

func TestUsable(t *testing.T) {
	t.Parallel()
	t.Run("GivesBackWhatItGets", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, fault.Usable(nil))
		require.Equal(t, io.EOF, fault.Usable(io.EOF))
	})
	t.Run("PanicsWhereLookingAtTheErrorWould", func(t *testing.T) {
		t.Parallel()
		var nothing *fault.StatusError
		require.Panics(t, func() { _ = fault.Usable(nothing) })
	})
}

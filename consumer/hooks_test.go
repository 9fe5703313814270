package consumer

import (
	"bytes"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/record"
)

func TestHooks_PanicOfAUsersHookEndsThere(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	panics := record.Hooks{}
	each(&panics, func(hook reflect.Value) {
		hook.Set(reflect.MakeFunc(hook.Type(), func([]reflect.Value) []reflect.Value { panic("in a hook") }))
	})
	hooks := guarded(panics, slog.New(slog.NewTextHandler(&log, nil)))
	each(&hooks, func(hook reflect.Value) {
		require.False(t, hook.IsNil())
		hook.Call([]reflect.Value{reflect.Zero(hook.Type().In(0))})
	})
	require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
}

func TestHooks_NoneStayNone(t *testing.T) {
	t.Parallel()
	hooks := guarded(record.Hooks{}, slog.Default())
	each(&hooks, func(hook reflect.Value) { require.True(t, hook.IsNil(), "an info that nobody reads need not be built") })
}

func each(h *record.Hooks, f func(hook reflect.Value)) {
	v := reflect.ValueOf(h).Elem()
	for i := range v.NumField() {
		f(v.Field(i))
	}
}

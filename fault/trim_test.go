package fault

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTrim(t *testing.T) {
	t.Parallel()
	frames := func(names ...string) []runtime.Frame {
		all := make([]runtime.Frame, len(names))
		for i, name := range names {
			all[i].Function = name
		}
		return all
	}
	const (
		deferred = "github.com/headrace/headrace/dedup.run.func1"
		engine   = "github.com/headrace/headrace/dedup.(*writer).run"
		router   = "github.com/ThreeDotsLabs/watermill/message.(*handler).handleMessage"
	)
	for _, r := range []struct {
		name     string
		in, want []runtime.Frame
	}{
		{
			"TheEngineAroundTheHandlerGoes",
			frames(deferred, "runtime.gopanic", "runtime.panicmem", "runtime.sigpanic", "main.apply", "main.handle", engine, router, "runtime.goexit"),
			frames("main.apply", "main.handle"),
		},
		{
			"TheEngineWithinTheHandlerStays",
			frames(deferred, "runtime.gopanic", engine, "main.handle", engine, "main.middleware", engine, "runtime.goexit"),
			frames(engine, "main.handle", engine, "main.middleware"),
		},
		{
			"AStackOfTheEngineAloneStays",
			frames(deferred, "runtime.gopanic", engine, "runtime.goexit"),
			frames(engine, "runtime.goexit"),
		},
		{"NoPanic", frames("main.handle", engine), frames("main.handle")},
		{"Empty", frames(), frames()},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, r.want, trim(r.in))
		})
	}
}

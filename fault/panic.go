package fault

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	maxPanicText  = 512
	maxPanicStack = 4 << 10
	maxFrames     = 64
)

// PanicError is a panic of a handler. It is ClassPermanent, whatever the value.
type PanicError struct {
	// Value is what was panicked with.
	Value any
	// Stack is where, innermost first, without the runtime's frames and those of the engine that called the handler;
	// 4 KiB at most.
	Stack []byte
}

// Recovered makes the error of what recover() gave. Call it in the deferred function itself, while the stack still
// shows the place. A PanicError that was panicked with again stays what it is.
func Recovered(v any) *PanicError {
	if e, ok := v.(*PanicError); ok && e != nil {
		return e
	}
	return &PanicError{Value: v, Stack: userStack(3)}
}

// Usable gives err back after asking it what will be asked of it later: its text, Is, As and Unwrap. An error whose
// methods panic (most often a nil pointer that nobody compared with nil) panics here: call it where a panic is recovered,
// so that it is the failure of whoever returned it. nil stays nil.
func Usable(err error) error {
	if err != nil {
		var skip *SkipError
		_ = err.Error()
		_ = errors.Is(err, errNobodys)
		_ = errors.As(err, &skip)
	}
	return err
}

var errNobodys = errors.New("an error that nobody returns")

// Error has the value's text if it has one, cut to 512 bytes, else its type: a value may be a whole payload.
func (e *PanicError) Error() string { return "panic: " + cut(panicText(e.Value), maxPanicText) }

// Unwrap gives the value if it is an error, for errors.Is and errors.As. The classifier does not look at it.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

func panicText(v any) string {
	switch v.(type) {
	case nil, error, fmt.Stringer, string, bool, int, int32, int64, uint, uint32, uint64, float32, float64:
		return fmt.Sprint(v)
	}
	return fmt.Sprintf("value of type %T", v)
}

// cut shortens s to n bytes, between two runes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// userStack is the stack of the panic that is being recovered; skip leads to the deferred function.
func userStack(skip int) []byte {
	pcs := make([]uintptr, maxFrames)
	pcs = pcs[:runtime.Callers(skip, pcs)]
	return format(trim(resolve(pcs)))
}

func resolve(pcs []uintptr) []runtime.Frame {
	var all []runtime.Frame
	for frames := runtime.CallersFrames(pcs); len(pcs) > 0; {
		frame, more := frames.Next()
		all = append(all, frame)
		if !more {
			break
		}
	}
	return all
}

// trim leaves what lies between the panic and the engine: nothing above runtime.gopanic (the deferred functions), none
// of the runtime's frames that raise it, and none of the engine's at the outer end. A stack that is the engine's alone
// keeps them.
func trim(frames []runtime.Frame) []runtime.Frame {
	for i, f := range frames {
		if f.Function == "runtime.gopanic" {
			frames = frames[i+1:]
			break
		}
	}
	for len(frames) > 1 && ofRuntime(frames[0]) {
		frames = frames[1:]
	}
	end := len(frames)
	for end > 0 && (ofRuntime(frames[end-1]) || ofEngine(frames[end-1])) {
		end--
	}
	if end == 0 {
		return frames
	}
	return frames[:end]
}

func ofRuntime(f runtime.Frame) bool { return strings.HasPrefix(f.Function, "runtime.") }

func ofEngine(f runtime.Frame) bool {
	return strings.HasPrefix(f.Function, "github.com/headrace/headrace/") ||
		strings.HasPrefix(f.Function, "github.com/ThreeDotsLabs/watermill/")
}

// format ends between two frames, so that no line is half.
func format(frames []runtime.Frame) []byte {
	var stack []byte
	for _, f := range frames {
		line := f.Function + "\n\t" + f.File + ":" + strconv.Itoa(f.Line) + "\n"
		if len(stack)+len(line) > maxPanicStack {
			break
		}
		stack = append(stack, line...)
	}
	return stack
}

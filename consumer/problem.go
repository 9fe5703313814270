package consumer

import (
	"fmt"
	"strings"

	"github.com/headrace/headrace/internal/redact"
)

// Problem is one reason for which a consumer cannot start.
type Problem struct {
	// What is wrong, with the value that is.
	What string
	// Fix is what to do about it.
	Fix string
	// Err is what was found, nil where What says it all. It is found by errors.Is and errors.As.
	Err error
}

func (p Problem) Error() string {
	text := p.What
	if p.Err != nil {
		text += ": " + redact.Error(p.Err)
	}
	if p.Fix == "" {
		return text
	}
	return text + "\n  fix: " + p.Fix
}

// Unwrap gives Err.
func (p Problem) Unwrap() error { return p.Err }

// StartError is everything that keeps a consumer from starting, all at once: New finds what the configuration alone
// shows, Run and Check what the broker and the database show.
type StartError struct{ Problems []Problem }

func (e *StartError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the consumer cannot start, %s:", plural(len(e.Problems), "problem"))
	for _, p := range e.Problems {
		b.WriteString("\n- " + strings.ReplaceAll(p.Error(), "\n", "\n  "))
	}
	return b.String()
}

// Unwrap gives the problems.
func (e *StartError) Unwrap() []error {
	errs := make([]error, len(e.Problems))
	for i, p := range e.Problems {
		errs[i] = p
	}
	return errs
}

// refuse gives the error of problems, nil if there are none.
func refuse(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return &StartError{Problems: problems}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

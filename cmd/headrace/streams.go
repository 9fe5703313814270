package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// defaultWidth is that of a terminal that does not say.
const defaultWidth = 120

// streams is what a command sees of the world beside its arguments. Tests have one of buffers.
type streams struct {
	in       io.Reader
	out, err io.Writer
	// getenv reads an environment variable.
	getenv func(string) string
	// outTerminal says that out is a terminal, inTerminal that somebody can be asked: in and err both are one.
	outTerminal, inTerminal bool
	// width is that of out's terminal, in columns; 0 if it is none, and nothing is to be cut.
	width int
}

// process is this process' own.
func process() streams {
	out := int(os.Stdout.Fd())
	s := streams{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv,
		outTerminal: term.IsTerminal(out),
		inTerminal:  term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd())),
	}
	if s.outTerminal {
		s.width = defaultWidth
		if width, _, err := term.GetSize(out); err == nil && width > 0 {
			s.width = width
		}
	}
	return s
}

// faithful is a writer that remembers what it could not write: a full disk must not look like a success.
type faithful struct {
	io.Writer
	err error
}

func (f *faithful) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	if err != nil && f.err == nil {
		f.err = err
	}
	return n, err
}

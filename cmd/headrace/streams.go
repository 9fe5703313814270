package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// defaultWidth is how wide a table may be where there is no terminal to ask.
const defaultWidth = 120

// streams is what a command sees of the world beside its arguments. Tests have one of buffers.
type streams struct {
	in       io.Reader
	out, err io.Writer
	// getenv reads an environment variable.
	getenv func(string) string
	// outTerminal says that out is a terminal, inTerminal that somebody can be asked: in and err both are one.
	outTerminal, inTerminal bool
	// width is the terminal's, in columns.
	width int
}

// process is this process' own.
func process() streams {
	out := int(os.Stdout.Fd())
	s := streams{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv, width: defaultWidth,
		outTerminal: term.IsTerminal(out),
		inTerminal:  term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd())),
	}
	if width, _, err := term.GetSize(out); err == nil && width > 0 {
		s.width = width
	}
	return s
}

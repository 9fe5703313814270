package redact

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxText is how many bytes a text has at most.
const MaxText = 4 << 10

// scanned is how much of a text is looked at. Secrets are replaced before it is cut, so that no half of one stays.
const scanned = 64 << 10

// Error is Text of an error's text, "" for nil.
func Error(err error) string {
	if err == nil {
		return ""
	}
	return Text(text(err))
}

// Text is s as it may be kept and shown: valid UTF-8, what must not leave replaced by ***, at most MaxText bytes and cut
// between runes.
func Text(s string) string {
	return Trim(Values(Secrets(valid(s))), MaxText)
}

// valid is as much of s as is looked at, as text.
func valid(s string) string { return strings.ToValidUTF8(Head(s), "\uFFFD") }

// Head is as much of a text as is looked at. It is cut at a space: a secret has none, so none is cut in two.
func Head(s string) string {
	if len(s) <= scanned {
		return s
	}
	s = s[:scanned]
	if i := strings.LastIndexAny(s, " \n\t"); i > 0 {
		s = s[:i]
	}
	return s
}

// text asks an error for its text. A typed nil pointer in an error panics when it is asked.
func text(err error) (s string) {
	defer func() {
		if recover() != nil {
			s = fmt.Sprintf("%T that panics when asked for its text", err)
		}
	}()
	return err.Error()
}

// Trim cuts s to at most n bytes, between runes, and marks where.
func Trim(s string, n int) string {
	const mark = "…"
	if len(s) <= n {
		return s
	}
	n -= len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}

// Of is err with another text, which may be logged: what by says of it, or err itself if by is nil, as Text gives it.
// What errors.Is and errors.As find stays the same. An error that Of gave is given back as it is, and nil is nil.
func Of(err error, by func(error) string) error {
	if err == nil {
		return nil
	}
	s, done := err.(*shown) //nolint:errorlint // the outermost only: what wraps one says more
	switch {
	case done && (by == nil || !s.rules):
		return err
	case done && s.own != nil:
		return As(s.err, Text(s.own(valid(said(s.err, by)))))
	case done:
		err = s.err
	}
	return As(err, Text(said(err, by)))
}

// Rules is Of by the built-in rules alone, for who does not know the RedactError of those that it tells: they give it to Of
// with theirs, which looks at the error anew. own, if not nil, takes what is a record's out of the text, then as now.
func Rules(err error, own func(text string) string) error {
	if _, done := err.(*shown); done || err == nil { //nolint:errorlint // the outermost only: what wraps one says more
		return err
	}
	s := valid(text(err))
	if own != nil {
		s = own(s)
	}
	return &shown{err: err, text: Text(s), rules: true, own: own}
}

// As is err with this text.
func As(err error, text string) error { return &shown{err: err, text: text} }

// said asks by, which may be a user's: one that panics has said nothing.
func said(err error, by func(error) string) (s string) {
	if by == nil {
		return text(err)
	}
	defer func() {
		if recover() != nil {
			s = fmt.Sprintf("%T, of which RedactError panics", err)
		}
	}()
	return by(err)
}

// Said is what by says of err, which Text has not seen yet; the error's own text if by is nil.
func Said(err error, by func(error) string) string { return said(err, by) }

type shown struct {
	err   error
	text  string
	rules bool // nobody's RedactError has seen it
	own   func(string) string
}

func (e *shown) Error() string { return e.text }
func (e *shown) Unwrap() error { return e.err }

package dlq

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// telling are words after which a number says which error it is, and not which record it was.
var telling = map[string]bool{"sqlstate": true, "status": true, "code": true}

// shape is the head of a message without what varies from record to record: a word with a digit in it becomes "#", what
// is quoted becomes "?".
func shape(message string) string {
	var out strings.Builder
	rest, before := trim(message, grouped), ""
	for rest != "" {
		size := wordSize(rest)
		switch {
		case size > 0 && varies(rest[:size]) && !telling[before]:
			out.WriteByte('#')
			before = ""
		case size > 0:
			out.WriteString(rest[:size])
			before = strings.ToLower(rest[:size])
		default:
			size = separator(&out, rest)
		}
		rest = rest[size:]
	}
	return out.String()
}

// wordSize is the size of the word at the beginning of s, 0 for none. An apostrophe within is part of it: O'Neil.
func wordSize(s string) int {
	for i, r := range s {
		inside := i > 0 && (r == '-' || r == '\'' && i+1 < len(s) && isLetter(s[i+1:]))
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !inside {
			return i
		}
	}
	return len(s)
}

func isLetter(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return unicode.IsLetter(r)
}

func varies(word string) bool { return strings.ContainsFunc(word, unicode.IsDigit) }

// separator writes what is no word, or one mark for all that is quoted, and gives its size.
func separator(out *strings.Builder, s string) int {
	switch s[0] {
	case '"', '\'', '`':
		if end := closing(s); end > 0 {
			out.WriteByte('?')
			return end + 1
		}
	}
	_, size := utf8.DecodeRuneInString(s)
	out.WriteString(s[:size])
	return size
}

// closing is where the quotation that s begins with ends, 0 for nowhere.
func closing(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			return i
		}
	}
	return 0
}

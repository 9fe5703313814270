package redact

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shortest is how long a value must be to be looked for: a shorter one is in every text, and says nothing of anybody.
const shortest = 4

// longest is how long one may be: what is longer does not fit into what is left of a text.
const longest = scanned

// Own replaces value by [name] where it stands in text as a word of its own, as it is or as Go quotes it.
func Own(text, name string, value []byte) string {
	if len(value) < shortest || len(value) > longest || len(text) < len(value) {
		return text
	}
	plain := string(value)
	text = words(text, plain, "["+name+"]")
	if q := strconv.Quote(plain); q[1:len(q)-1] != plain {
		text = words(text, q[1:len(q)-1], "["+name+"]")
	}
	return text
}

// words replaces each occurrence of word that is not a part of a longer one.
func words(text, word, instead string) string {
	var out strings.Builder
	rest, before := text, ' '
	for {
		i := strings.Index(rest, word)
		if i < 0 {
			break
		}
		if i > 0 {
			before, _ = utf8.DecodeLastRuneInString(rest[:i])
		}
		after, _ := utf8.DecodeRuneInString(rest[i+len(word):])
		end := i + len(word)
		if partOfWord(before, first(word)) || partOfWord(last(word), after) {
			_, size := utf8.DecodeRuneInString(word)
			end = i + size // one that stands alone may begin within it
			out.WriteString(rest[:end])
		} else {
			out.WriteString(rest[:i])
			out.WriteString(instead)
		}
		before, _ = utf8.DecodeLastRuneInString(rest[:end])
		rest = rest[end:]
	}
	if out.Len() == 0 {
		return text
	}
	return out.String() + rest
}

func first(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return r
}

func last(s string) rune {
	r, _ := utf8.DecodeLastRuneInString(s)
	return r
}

func partOfWord(a, b rune) bool { return inWord(a) && inWord(b) }

func inWord(r rune) bool { return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r)) }

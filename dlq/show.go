package dlq

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headrace/headrace/internal/redact"
	"github.com/headrace/headrace/record"
)

// Escape makes bytes fit for a terminal: whatever does not print as a character of its own is written out as in a Go
// string. That is control characters, and with them every escape sequence, newlines, marks that turn the direction of
// writing, other invisible ones, and bytes that are no UTF-8. A backslash is doubled, so that nothing looks escaped that
// is not.
//
// At most limit bytes of b are shown, 0 or less for all; "… (12 more bytes)" says what is left out.
func Escape(b []byte, limit int) string {
	shown := cut(b, limit)
	var out strings.Builder
	out.Grow(len(shown) + 24)
	for rest := shown; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		escapeRune(&out, r, rest[:size])
		rest = rest[size:]
	}
	if more := len(b) - len(shown); more > 0 {
		fmt.Fprintf(&out, "… (%d more bytes)", more)
	}
	return out.String()
}

// cut cuts b to at most n bytes, between runes if it has any.
func cut(b []byte, n int) []byte {
	if n <= 0 || len(b) <= n {
		return b
	}
	for i := n; i > max(0, n-utf8.UTFMax); i-- {
		if utf8.RuneStart(b[i]) {
			return b[:i]
		}
	}
	return b[:n]
}

func escapeRune(out *strings.Builder, r rune, raw []byte) {
	switch {
	case r == utf8.RuneError && len(raw) == 1:
		fmt.Fprintf(out, `\x%02x`, raw[0])
	case r == '\\':
		out.WriteString(`\\`)
	case unicode.IsPrint(r):
		out.Write(raw)
	default:
		quoted := strconv.QuoteRuneToASCII(r)
		out.WriteString(quoted[1 : len(quoted)-1])
	}
}

// Preview is Escape of a payload or an error's text in which what looks like a secret is replaced by ***, as in the
// messages of our own letters. Only its first 64 KiB are looked at, and shown.
func Preview(b []byte, limit int) string {
	head := cut(b, scanned)
	text := []byte(redact.Secrets(string(head)))
	if limit <= 0 || limit > len(text) {
		limit = len(text)
	}
	shown := cut(text, limit)
	out := Escape(shown, 0)
	if more := len(b) - len(head) + len(text) - len(shown); more > 0 {
		out += fmt.Sprintf("… (%d more bytes)", more)
	}
	return out
}

// redacted stands for a header's value that is not to be shown.
const redacted = "[redacted]"

// secretNames are what the names of headers with secrets in them contain, in lower case and without punctuation.
var secretNames = []string{
	"authorization", "cookie", "password", "passwd", "secret", "token", "apikey", "accesskey", "privatekey", "credential",
}

// HeaderValue is a header's value as Preview shows it, "[redacted]" for one whose name says that it is a secret.
func HeaderValue(h record.Header, limit int) string {
	name := strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, h.Key)
	for _, secret := range secretNames {
		if strings.Contains(name, secret) {
			return redacted
		}
	}
	return Preview(h.Value, limit)
}

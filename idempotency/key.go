package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
)

// Header is the request's header with the key.
const Header = "Idempotency-Key"

// maxName is how many bytes a route's name, a principal and a key may have: together they are an index entry.
const maxName = 255

// Key is what is run once: a key of a principal's, for a method and a route.
type Key struct {
	Route     string
	Method    string
	Principal string
	// Key is the header's value, without the quotes that a structured header has.
	Key string
}

// String is for logs: without the key, which may be a secret, and the principal, which may be a person.
func (k Key) String() string { return k.Method + " " + k.Route }

var (
	errNoKey   = errors.New("the header Idempotency-Key is missing")
	errTwoKeys = errors.New("there is more than one Idempotency-Key")
)

// keyOf reads the header, quoted as a structured header or bare: most clients send it so, and both are the same key.
func keyOf(h http.Header) (string, error) {
	values := h.Values(Header)
	switch len(values) {
	case 0:
		return "", errNoKey
	case 1:
		return parseKey(values[0])
	}
	return "", errTwoKeys
}

func parseKey(value string) (key string, err error) {
	key = strings.Trim(value, " \t")
	if inner, quoted := strings.CutPrefix(key, `"`); quoted {
		if key, err = unquote(inner); err != nil {
			return "", err
		}
	}
	switch {
	case key == "":
		return "", errNoKey
	case len(key) > maxName:
		return "", fmt.Errorf("the Idempotency-Key has %d characters, more than %d", len(key), maxName)
	}
	for _, b := range []byte(key) {
		if b < ' ' || b > '~' {
			return "", fmt.Errorf("the Idempotency-Key has the byte %#02x: it is of printable ASCII", b)
		}
	}
	return key, nil
}

// unquote reads the rest of a structured header's string (RFC 8941, 3.3.3): a backslash is before a quote or a backslash.
func unquote(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"' && i == len(s)-1:
			return b.String(), nil
		case s[i] == '"':
			return "", errors.New("something follows the closing quote of the Idempotency-Key")
		case s[i] == '\\':
			if i++; i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", errors.New("a backslash in the Idempotency-Key is before neither a quote nor a backslash")
			}
		}
		b.WriteByte(s[i])
	}
	return "", errors.New("the quote of the Idempotency-Key is not closed")
}

func validName(what, name string) error {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return fmt.Errorf("the %s is not between 1 and %d bytes of UTF-8: it has %d bytes", what, maxName, len(name))
	}
	return nil
}

// fingerprint is of what a key stands for: with another path, query or body it was reused.
func fingerprint(r *http.Request, body []byte) []byte {
	return digest([]byte(r.URL.EscapedPath()), []byte(r.URL.RawQuery), body)
}

// lockNumber is the key's advisory lock. That two keys share one costs a needless 409.
func (k Key) lockNumber(table string) int64 {
	sum := digest([]byte(table), []byte(k.Route), []byte(k.Method), []byte(k.Principal), []byte(k.Key))
	return int64(binary.BigEndian.Uint64(sum)) //nolint:gosec // any 64 bits will do
}

// digest has each part's length before it: "a", "bc" must not be "ab", "c".
func digest(parts ...[]byte) []byte {
	h := sha256.New()
	for _, part := range parts {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part)))) // a hash takes everything
		_, _ = h.Write(part)
	}
	return h.Sum(nil)
}

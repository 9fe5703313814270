package idempotency

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseKey(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"8e03978e-40d5":              "8e03978e-40d5",
		`"8e03978e-40d5"`:            "8e03978e-40d5",
		`"a\"b\\c"`:                  `a"b\c`,
		`a"b`:                        `a"b`,
		strings.Repeat("k", maxName): strings.Repeat("k", maxName),
	} {
		got, err := parseKey(value)
		require.NoError(t, err, value)
		require.Equal(t, want, got)
	}
	spaced, err := parseKey("\t\"a b\" ")
	require.NoError(t, err)
	require.Equal(t, "a b", spaced)
	for _, value := range []string{"", " ", `""`, `"`, `"a`, `"a\`, `"a\b"`, `"a" b`, "a\x00", "a\n", "ä", strings.Repeat("k", maxName+1)} {
		_, err := parseKey(value)
		require.Error(t, err, "%q", value)
	}
}

// Whatever is taken for a key can be stored, and is the same key in quotes.
func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{"k", `"k"`, `"a\"b"`, `"`, "\\", ` "k" `, `a"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, err := parseKey(value)
		if err != nil {
			return
		}
		require.NoError(t, validName("key", key))
		quoted, err := parseKey(`"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`)
		if strings.Trim(key, " ") != "" {
			require.NoError(t, err)
			require.Equal(t, key, quoted)
		}
	})
}

func TestDigest_KeepsPartsApart(t *testing.T) {
	t.Parallel()
	require.NotEqual(t, digest([]byte("a"), []byte("bc")), digest([]byte("ab"), []byte("c")))
	one := Key{Route: "charge", Method: "POST", Principal: "a", Key: "b"}
	require.NotEqual(t, one.lockNumber("t"), one.lockNumber("u"))
	require.NotEqual(t, one.lockNumber("t"), Key{Route: "charge", Method: "POST", Principal: "ab"}.lockNumber("t"))
}

func TestHeaders_AreStoredByTheirList(t *testing.T) {
	t.Parallel()
	h := http.Header{
		"Content-Type": {"text/plain"}, "Link": {"<a>", "<b>"}, "etag": {`"7"`},
		"Set-Cookie": {"s=1"}, "X-Request-Id": {"9"}, "Location": {"/a\r\nSet-Cookie: s=1"}, "Content-Language": {"a\x7f"},
	}
	got, err := decodeHeader(encodeHeader(h, storedHeaders))
	require.NoError(t, err)
	require.Equal(t, http.Header{
		"Content-Type": {"text/plain"}, "Link": {"<a>", "<b>"}, "Etag": {`"7"`},
	}, got)
}

// What is stored comes back, and what is stored by somebody else is an error, not a panic.
func FuzzHeaders(f *testing.F) {
	f.Add([]byte("Link: <a>\r\n"), "text/plain")
	f.Add([]byte("\r\n"), "a\nb: c")
	f.Add([]byte(":"), " x ")
	f.Fuzz(func(t *testing.T, stored []byte, value string) {
		_, _ = decodeHeader(stored)
		wire := encodeHeader(http.Header{"Content-Type": {value}}, storedHeaders)
		h, err := decodeHeader(wire)
		require.NoError(t, err)
		require.LessOrEqual(t, len(h), 1)
		require.Equal(t, wire, encodeHeader(h, storedHeaders), "a second time it is the same")
	})
}

func TestFinal(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 201, 204, 303, 400, 402, 403, 404, 409, 410, 422} {
		require.True(t, final(status), status)
	}
	for _, status := range []int{401, 408, 421, 423, 425, 429, 500, 502, 503, 599, 600} {
		require.False(t, final(status), status)
	}
}

func TestBuffer(t *testing.T) {
	t.Parallel()
	b := newBuffer(4)
	b.Header().Set("A", "1")
	b.WriteHeader(http.StatusEarlyHints)
	b.WriteHeader(http.StatusNoContent)
	b.Header().Set("A", "2")
	_, err := b.Write([]byte("x"))
	require.ErrorIs(t, err, http.ErrBodyNotAllowed)
	require.Equal(t, Answer{Status: 204, Header: http.Header{"A": {"1"}}}, b.answer())

	b = newBuffer(4)
	n, err := b.Write([]byte("1234"))
	require.NoError(t, err)
	require.Equal(t, 4, n)
	_, err = b.Write([]byte("5"))
	require.ErrorIs(t, err, ErrTooLarge)
	require.True(t, b.over)
	require.Panics(t, func() { newBuffer(4).WriteHeader(7) })
	require.Equal(t, http.StatusOK, newBuffer(4).answer().Status, "a handler that says nothing says 200")
}

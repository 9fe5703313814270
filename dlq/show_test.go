package dlq_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/record"
)

// A payload must not be able to write to the terminal of whoever looks at it.
func TestEscape_NothingReachesTheTerminalButText(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"":                                 "",
		`{"name":"Zoë 水 🎉"}`:               `{"name":"Zoë 水 🎉"}`,
		"\x1b[2J\x1b[31mall is well":       `\x1b[2J\x1b[31mall is well`,
		"\x1b]0;title\a\x1b]52;c;cm0=\x07": `\x1b]0;title\a\x1b]52;c;cm0=\a`,
		"\u009b2J\u009d0;x":                `\u009b2J\u009d0;x`,
		"\x9b2J":                           `\x9b2J`,
		"a\r\nb\tc\x00\b\x7f":              `a\r\nb\tc\x00\b\x7f`,
		"pay \u202eeno\u202c \u2066x":      `pay \u202eeno\u202c \u2066x`,
		"a\u200bb\ufeffc\u00adz\u2028y":    `a\u200bb\ufeffc\u00adz\u2028y`,
		"\U000e0041":                       `\U000e0041`,
		"\xff\xfe\xc3":                     `\xff\xfe\xc3`,
		"\ufffd":                           "\ufffd",
		`C:\new`:                           `C:\\new`,
	} {
		require.Equal(t, want, dlq.Escape([]byte(raw), 0))
	}
}

func TestEscape_SaysHowMuchItLeavesOut(t *testing.T) {
	t.Parallel()
	require.Equal(t, "abc", dlq.Escape([]byte("abc"), 3))
	require.Equal(t, "ab… (1 more bytes)", dlq.Escape([]byte("abc"), 2))
	require.Equal(t, "a… (3 more bytes)", dlq.Escape([]byte("a水"), 2), "a rune is not cut")
	require.Equal(t, `\xff\xff… (8 more bytes)`, dlq.Escape([]byte(strings.Repeat("\xff", 10)), 2))
	require.Equal(t, `\x80\x80\x80\x80\x80… (5 more bytes)`, dlq.Escape([]byte(strings.Repeat("\x80", 10)), 5))
	require.Len(t, dlq.Escape(make([]byte, 1<<20), 100), 400+len("… (1048476 more bytes)"))
}

func FuzzEscape(f *testing.F) {
	f.Add([]byte("\x1b[2J水\xff"), 3)
	f.Fuzz(func(t *testing.T, raw []byte, limit int) {
		for _, shown := range []string{dlq.Escape(raw, limit), dlq.Preview(raw, limit), dlq.HeaderValue(record.Header{Key: "k", Value: raw}, limit)} {
			require.True(t, utf8.ValidString(shown))
			for _, r := range shown {
				require.True(t, unicode.IsPrint(r), "%U", r)
			}
		}
	})
}

func TestPreview_ShowsNoSecrets(t *testing.T) {
	t.Parallel()
	require.Equal(t, `user=a {"password":***}`, dlq.Preview([]byte(`user=a {"password":"hunter2"}`), 0))
	require.Equal(t, "postgres://***@db\\x1b[2J", dlq.Preview([]byte("postgres://app:s3cr3t@db\x1b[2J"), 0))
	require.Equal(t, "ab… (2 more bytes)", dlq.Preview([]byte("abcd"), 2))
	large := append([]byte("token=t0ps3cret "), make([]byte, 1<<20)...)
	require.Equal(t, `token=***… (1048577 more bytes)`, dlq.Preview(large, 9))
}

func TestHeaderValue_HidesWhatItsNameSaysIsSecret(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Authorization", "proxy-authorization", "Cookie", "set-cookie", "db_password", "x-api-key", "X-Api-Key", "apiKey", "API.KEY",
		"session-token", "client_secret", "aws-access-key", "private-key", "db.credentials",
	} {
		require.Equal(t, "[redacted]", dlq.HeaderValue(record.Header{Key: name, Value: []byte("hunter2")}, 0), name)
	}
	require.Equal(t, "4bf9", dlq.HeaderValue(record.Header{Key: "trace-id", Value: []byte("4bf9")}, 0))
	require.Equal(t, "Bearer ***", dlq.HeaderValue(record.Header{Key: "auth", Value: []byte("Bearer abcdefghijkl")}, 0))
	require.Equal(t, `\x00\x00`, dlq.HeaderValue(record.Header{Key: "offset", Value: []byte{0, 0}}, 0))
	require.Empty(t, dlq.HeaderValue(record.Header{Key: "nil"}, 0))
}

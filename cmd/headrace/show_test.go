package main

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/record"
)

func TestShow(t *testing.T) {
	t.Parallel()

	t.Run("LetterIsShownWhole", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		env := exhausted(7)
		env.Reason, env.Stack, env.Replays = dlq.Panic, "main.charge\n\t/app/main.go:42", 1
		env.Latest = dlq.Coordinates{Topic: "orders.billing.replay", Partition: 0, Offset: 12}
		place := b.bury(env, []byte("c-7"), []byte(`{"id":"order-7","cents":1290}`), record.Header{Key: "trace-id", Value: []byte("4bf9")}, record.Header{Key: "empty"})
		r := b.ok("dlq", "show", "--topic", "orders.dlq", "--pretty", place)
		require.Empty(t, r.err)
		require.Equal(t, `
letter        orders.dlq/1/0
format        headrace
written       2026-11-30T03:14:07.000Z
reason        panic
  means       the handler panicked; the stack is in the letter
  to do       fix the handler, then replay
origin        orders/1/7
  timestamp   2026-11-30T03:13:07.000Z
  last read at orders.billing.replay/0/12
id            `+env.MessageID.String()+`
group         billing
route         charge-order
class         transient
error type    *downstream.StatusError
error         payments: 503 Service Unavailable
fingerprint   9a0c4f11
attempts      3
replays       1
first failed  2026-11-30T03:14:04.000Z
last failed   2026-11-30T03:14:07.000Z

stack
  main.charge
    /app/main.go:42

headers (2)
  trace-id: 4bf9
  empty: (null)

key (3 bytes)
  c-7

value (29 bytes)
  {
    "id": "order-7",
    "cents": 1290
  }
`, "\n"+r.out)
	})

	t.Run("OfAParkedRecordShowsWhatEachRoundEndedWith", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		env := exhausted(7)
		env.History = "2026-11-30T01:00:00Z transient after 3 attempts: \x1b[2J503\n2026-11-30T02:00:00Z ambiguous after 1 attempts: password=hunter22"
		place := b.bury(env, nil, nil)
		require.Contains(t, b.ok("dlq", "show", "--topic", "orders.dlq", place).out, "\nrounds before\n"+
			`  2026-11-30T01:00:00Z transient after 3 attempts: \x1b[2J503`+"\n"+
			"  2026-11-30T02:00:00Z ambiguous after 1 attempts: password=***\n")
		var got struct{ History []string }
		require.NoError(t, json.Unmarshal([]byte(b.ok("dlq", "show", "--topic", "orders.dlq", "--json", place).out), &got))
		require.Len(t, got.History, 2)
		require.NotContains(t, got.History[1], "hunter22")
	})

	t.Run("IsFoundByPlaceOriginAndID", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.buryMany(3)
		for _, args := range []string{"1/2", "orders.dlq/1/2", "--at orders/1/2", "--at orders.dlq/1/2", "--id " + exhausted(2).MessageID.String(), "--key c-2"} {
			r := b.ok(append([]string{"dlq", "show", "--topic", "orders.dlq", "--raw"}, strings.Fields(args)...)...)
			require.JSONEq(t, `{"id":"order-2"}`, r.out, args)
		}
	})

	t.Run("NoneAndManyAreErrorsThatNameOthers", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.buryMany(3)
		r := b.run("dlq", "show", "--topic", "orders.dlq", "1/99")
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "no letter of orders.dlq matches, of 3 letters")
		r = b.run("dlq", "show", "--topic", "orders.dlq")
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.err, "more than one letter matches: 1/0, 1/1")
		for args, want := range map[string]string{
			"3":                `"3" is no partition/offset`,
			"orders/1/1":       `"orders/1/1" is no partition/offset`,
			"-- -1/5":          `"-1/5" is no partition/offset`,
			"1/1 1/2":          `unexpected argument "1/2"`,
			"1/1 --raw --json": "exclude each other",
		} {
			r := b.run(append([]string{"dlq", "show", "--topic", "orders.dlq"}, strings.Fields(args)...)...)
			require.Equal(t, exitUsage, r.code, args)
			require.Contains(t, r.err, want)
		}
	})

	t.Run("RawIsByteForByteAndNeverToATerminal", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		value := "\x1b]0;owned\x07\xff\x00\n"
		place := b.bury(exhausted(1), nil, []byte(value))
		require.Equal(t, value, b.ok("dlq", "show", "--topic", "orders.dlq", "--raw", place).out)
		b.terminal = true
		r := b.run("dlq", "show", "--topic", "orders.dlq", "--raw", place)
		require.Equal(t, exitUsage, r.code)
		require.Empty(t, r.out)
		require.Contains(t, r.err, "does not write to a terminal")
	})

	t.Run("NilAndEmptyAreTwoThings", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		none, empty := b.bury(exhausted(1), nil, nil), b.bury(exhausted(2), []byte{}, []byte{})
		out := b.ok("dlq", "show", "--topic", "orders.dlq", none).out
		require.Contains(t, out, "key (none)\n\nvalue (none: a tombstone)\n")
		require.Contains(t, out, "headers (0)\n")
		require.Contains(t, b.ok("dlq", "show", "--topic", "orders.dlq", empty).out, "key (0 bytes)\n\nvalue (0 bytes)\n")
	})

	t.Run("ALargeValueIsShownInPart", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		place := b.bury(exhausted(1), nil, []byte(strings.Repeat("x", 100_000)))
		out := b.ok("dlq", "show", "--topic", "orders.dlq", place).out
		require.Less(t, len(out), 70_000)
		require.Contains(t, out, "value (100000 bytes)\n")
		require.Contains(t, out, "xxx… (34464 more bytes)\n  (--raw writes all of it)\n")
	})

	t.Run("JSONHasEverything", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		place := b.bury(exhausted(7), []byte("c-7"), []byte{0xff}, record.Header{Key: "a", Value: []byte("1")}, record.Header{Key: "a"})
		r := b.ok("dlq", "show", "--topic", "orders.dlq", "--json", place)
		require.Len(t, lines(r.out), 1)
		var got map[string]any
		require.NoError(t, json.Unmarshal([]byte(r.out), &got))
		require.Equal(t, "exhausted", got["reason"])
		require.Equal(t, `\xff`, got["value_preview"])
		require.EqualValues(t, 1, got["value_bytes"])
		require.Equal(t, []any{map[string]any{"key": "a", "value": "1"}, map[string]any{"key": "a", "value": nil}}, got["headers"])
	})
}

// What a producer wrote cannot take over the operator's terminal, wherever in the letter it is and however it is shown.
func TestShow_OfAPayloadWithTerminalEscapesShowsThemEscaped(t *testing.T) {
	t.Parallel()
	for name, evil := range map[string]string{
		"escape sequence": "\x1b[2J\x1b[31mred",
		"title":           "\x1b]0;owned\x07",
		"single-byte CSI": "\u009b31m",
		"as a raw byte":   "\x9b31m",
		"backspaces":      "safe\b\b\b\bevil",
		"carriage return": "safe\revil",
		"bidirectional":   "user\u202egpj.exe",
		"isolate":         "\u2066x\u2069",
		"zero width":      "pass\u200bword",
		"line separator":  "a\u2028b",
		"delete":          "\x7f",
		"invalid UTF-8":   "\xff\xfe",
		"new line":        "a\nfake  line",
		"byte order mark": "\ufeffx",
		"tags":            "\U000e0041",
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			env := exhausted(7)
			env.Message, env.Route, env.ErrorType, env.Stack, env.Class = evil, "r"+evil, evil, evil, evil
			inJSON, err := json.Marshal(map[string]string{"evil": strings.ToValidUTF8(evil, "?")})
			require.NoError(t, err)
			place := b.bury(env, []byte(evil), []byte(evil), record.Header{Key: "h" + evil, Value: []byte(evil)})
			inside := b.bury(exhausted(8), []byte("k"), inJSON)
			b.terminal = true
			for _, args := range []string{"ls", "ls --json", "show " + place, "show --json " + place, "show " + inside, "show --json " + inside, "replay --dry-run"} {
				r := b.ok(append([]string{"dlq"}, append(strings.Fields(args), "--topic", "orders.dlq")...)...)
				for _, c := range r.out + r.err {
					require.True(t, c == '\n' || unicode.IsPrint(c), "%s: %q in %q", args, c, r.out)
				}
				require.NotContains(t, r.out, "\nfake", args)
			}
		})
	}
}

// A letter is for looking at by whoever is paged, who needs no key to somebody else's account.
func TestShow_SecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	env := exhausted(7)
	env.Message = "connect to postgres://app:hunter2-a@db/x: refused"
	place := b.bury(
		env, []byte("c-7"), []byte(`{"password":"hunter2-b","id":7}`),
		record.Header{Key: "Authorization", Value: []byte("Bearer hunter2-c-hunter2-c")},
		record.Header{Key: "cookie", Value: []byte("session=hunter2-d")},
		record.Header{Key: "x-api-key", Value: []byte("hunter2-e")},
	)
	for _, args := range []string{"ls", "ls --json", "show " + place, "show --pretty " + place, "show --json " + place} {
		r := b.ok(append([]string{"dlq"}, append(strings.Fields(args), "--topic", "orders.dlq")...)...)
		require.NotContains(t, r.out+r.err, "hunter2", args)
	}
}

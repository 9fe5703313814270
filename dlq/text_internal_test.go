package dlq

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

func TestMessage(t *testing.T) {
	t.Parallel()
	t.Run("SecretsAreReplaced", func(t *testing.T) {
		t.Parallel()
		for text, want := range map[string]string{
			`dial postgres://app:s3cr3t@db:5432/x?sslmode=off failed`:  `dial postgres://***@db:5432/x?sslmode=off failed`,
			`postgresql://app:p@ss/w@rd@db/x: refused`:                 `postgresql://***@db/x: refused`,
			`Get "https://token@api.example.com/v1": EOF`:              `Get "https://***@api.example.com/v1": EOF`,
			`Get "https://u:p@api.example.com/users/a@b.com": EOF`:     `Get "https://***@api.example.com/users/a@b.com": EOF`,
			`Get "http://api:8080/users/a@b.com": EOF`:                 `Get "http://api:8080/users/a@b.com": EOF`,
			`amqp://guest:guest@mq:5672/`:                              `amqp://***@mq:5672/`,
			`app:s3cr3t@tcp(db:3306)/x: bad handshake`:                 `***@tcp(db:3306)/x: bad handshake`,
			`host=db user=app password=s3cr3t dbname=x`:                `host=db user=app password=*** dbname=x`,
			`host=db password='it''s s3cr3t' dbname=x`:                 `host=db password=*** dbname=x`,
			`DB_PASSWORD=s3cr3t;TIMEOUT=3`:                             `DB_PASSWORD=***;TIMEOUT=3`,
			`{"user":"a","password":"s3\"cr3t","n":1}`:                 `{"user":"a","password":***,"n":1}`,
			`api_key=abc&q=1`:                                          `api_key=***&q=1`,
			`X-Api-Key: abc`:                                           `X-Api-Key: ***`,
			`client_secret = "abc"`:                                    `client_secret = ***`,
			`Authorization: Bearer abc.def-ghi`:                        `Authorization: ***`,
			`map[Authorization:[Basic dTpw] Accept:[*/*]]`:             `map[Authorization:[***] Accept:[*/*]]`,
			`sent bearer abcdefghijkl`:                                 `sent bearer ***`,
			`key AKIAABCDEFGHIJKLMNOP denied`:                          `key *** denied`,
			`jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_ expired`:   `jwt *** expired`,
			`Get "https://api.example.com/v1?card=4111#x": EOF`:        `Get "https://api.example.com/v1?***": EOF`,
			`ghp_abcdefgh12345678 is revoked`:                          `*** is revoked`,
			`duplicate key value violates unique constraint "id_pkey"`: `duplicate key value violates unique constraint "id_pkey"`,
			`no account for order 17`:                                  `no account for order 17`,
		} {
			require.Equal(t, want, Message(errors.New(text)))
		}
	})

	t.Run("AMegabyteIsCutBetweenRunes", func(t *testing.T) {
		t.Parallel()
		for _, char := range []string{"x", "é", "水", "🛠", " "} {
			got := Message(errors.New(strings.Repeat(char, 1<<20/len(char))))
			require.LessOrEqual(t, len(got), maxMessage)
			require.Greater(t, len(got), maxMessage-8)
			require.True(t, utf8.ValidString(got))
			require.True(t, strings.HasSuffix(got, "…"))
		}
	})

	t.Run("NoSecretIsCutInTwo", func(t *testing.T) {
		t.Parallel()
		filler := strings.Repeat("x", maxMessage-20)
		require.NotContains(t, Message(errors.New(filler+" postgres://app:s3cr3t@db/x")), "s3c")
		// One that begins before the end of what is scanned and ends behind it, while what is before it shrinks to nothing.
		huge := strings.Repeat("password="+strings.Repeat("y", 1000)+" ", 65) + "postgres://app:s3cr3t" + strings.Repeat("z", 1<<20) + "@db"
		require.NotContains(t, Message(errors.New(huge)), "s3c")
	})

	t.Run("InvalidUTF8IsRepaired", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "bad \uFFFD byte", Message(errors.New("bad \xff byte")))
		require.True(t, utf8.ValidString(Message(errors.New(strings.Repeat("\xe6\xb0", 1<<20)))))
	})

	t.Run("AnErrorThatPanicsHasAText", func(t *testing.T) {
		t.Parallel()
		var nilPointer *fs.PathError
		require.Equal(t, "*fs.PathError that panics when asked for its text", Message(nilPointer))
		require.Empty(t, Message(nil))
	})
}

func TestErrorType(t *testing.T) {
	t.Parallel()
	pg := &pgconn.PgError{Code: "23505"}
	for want, err := range map[string]error{
		"":                    nil,
		"*errors.errorString": errors.New("x"),
		"*pgconn.PgError":     fmt.Errorf("apply: %w", fault.Permanent(fmt.Errorf("insert: %w", pg))),
		"*net.OpError":        errors.Join(fault.Transient(&net.OpError{Op: "dial", Err: pg}), errors.New("second")),
		"*fault.PanicError":   fmt.Errorf("handler: %w", &fault.PanicError{Value: pg}),
	} {
		require.Equal(t, want, errorType(err))
	}
}

func TestFingerprint_HasSixteenDigitsAlsoWithZerosInFront(t *testing.T) {
	t.Parallel()
	for i := range 2000 { // one in sixteen begins with a zero
		require.Len(t, fingerprint(Permanent, "*e", strings.Repeat("x", i%500)+string(rune('a'+i%26))), 16)
	}
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	of := func(message string) string { return fingerprint(Permanent, "*e", message) }
	t.Run("IsTheSameForWhatVaries", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, of(`no account for order 17`), of(`no account for order 18234`))
		require.Equal(t, of(`order 5a1f0c3e-7b1d-4c55-9d0e-0c6a2f0e9b11 is gone`), of(`order c0ffee00-0000-4000-8000-000000000001 is gone`))
		require.Equal(t, of(`O'Neil2 said 'it\'s 1' and "so`), of(`O'Neil3 said 'no' and "so`))
		require.Equal(t, of(`name "Ann" is taken`), of(`name "Bob O'Neil" is taken`))
	})
	t.Run("DiffersForWhatMatters", func(t *testing.T) {
		t.Parallel()
		seen := map[string]bool{}
		for _, f := range []string{
			of(`no account`), of(`no order`), of(`failed (SQLSTATE 23505)`), of(`failed (SQLSTATE 23503)`),
			of(`status 404`), of(`status 409`), fingerprint(Panic, "*e", "no account"), fingerprint(Permanent, "*f", "no account"),
			fingerprint(Permanent, "*eno", " account"),
		} {
			require.False(t, seen[f])
			seen[f] = true
		}
	})
	t.Run("IsStable", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, pinned, of("no account for order 17"))
	})
}

func TestStackOf(t *testing.T) {
	t.Parallel()
	require.Empty(t, stackOf(errors.New("x")))
	got := stackOf(fmt.Errorf("handler: %w", &fault.PanicError{Value: 1, Stack: []byte(strings.Repeat("main.go:1\n", 10_000))}))
	require.LessOrEqual(t, len(got), maxStack)
	require.Greater(t, len(got), maxStack-8)
}

// pinned pins the algorithm: letters of different releases must group together.
const pinned = "51ef3df76dd14a54"

func TestEnvelopeIsNeverLargerThanPromised(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("水", 1<<17)
	w := &Writer{}
	id := record.Identity{ID: strings.Repeat("i", maxID)}
	env, _ := w.envelope(Letter{
		Record: &record.Record{Topic: strings.Repeat("t", maxTopic), Offset: 1<<63 - 1, Partition: 1<<31 - 1, Identity: id}, Reason: Permanent, Class: long, Group: long, Route: long,
		Err: fmt.Errorf("%s: %w", long, &fault.PanicError{Value: long, Stack: []byte(long)}),
	})
	size := 0
	for _, h := range env.Append(nil) {
		size += len(h.Key) + len(h.Value) + 8
	}
	require.Less(t, size, MaxEnvelope)
	require.Equal(t, id.ID, env.ID)
	id.ID += "i"
	env, _ = w.envelope(Letter{Record: &record.Record{Identity: id}})
	require.Empty(t, env.ID, "half of an identity would be another")
}

// FuzzMessage wants a short, valid text of any error, in which a planted password is not found.
func FuzzMessage(f *testing.F) {
	f.Add("", "")
	f.Add("dial ", " failed")
	f.Add("\xff\xfe\"'`", "\\")
	f.Add(strings.Repeat("水", 2000), strings.Repeat("a=1 ", 40_000))
	f.Fuzz(func(t *testing.T, before, after string) {
		const planted = "pLanted-S3cret"
		for _, text := range []string{before + " postgres://app:" + planted + "@db/x " + after, before + " password=" + planted + " " + after} {
			got := Message(errors.New(text))
			require.LessOrEqual(t, len(got), maxMessage)
			require.True(t, utf8.ValidString(got))
			if !strings.Contains(before+after, planted) {
				require.NotContains(t, got, planted)
			}
			require.NotEmpty(t, fingerprint(Permanent, "*e", got))
		}
	})
}

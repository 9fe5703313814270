package redact_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/redact"
)

// said is another system's words.
type said string

func (s said) Error() string { return string(s) }

// The libraries' own errors are asked, so that one that words them anew is noticed.
func TestError_HasNoneOfTheDataThatALibraryCouldNotRead(t *testing.T) {
	t.Parallel()
	const canary = "4111-canary"
	of := func(_ any, err error) error { return err }
	strict := json.NewDecoder(strings.NewReader(`{"4111-canary": 1}`))
	strict.DisallowUnknownFields()
	var number struct{ N int8 }
	for want, err := range map[string]error{
		"strconv.ParseInt: parsing ***: invalid syntax":                      of(strconv.ParseInt(canary, 10, 64)),
		"strconv.ParseFloat: parsing ***: invalid syntax":                    of(strconv.ParseFloat(canary, 64)),
		`parsing time *** as "2006-01-02": cannot parse *** as "01"`:         of(time.Parse(time.DateOnly, canary)),
		"time: unknown unit ***":                                             of(time.ParseDuration("1" + canary)),
		"time: invalid duration ***":                                         of(time.ParseDuration("canary")),
		"ParseAddr(***): unable to parse IP":                                 of(netip.ParseAddr("canary")),
		"invalid urn prefix: ***":                                            of(uuid.Parse("4111canar" + "f47ac10b-58cc-0372-8567-0e02b2c3d479")),
		"json: unknown field ***":                                            strict.Decode(&struct{}{}),
		"json: cannot unmarshal number into Go struct field .N of type int8": json.Unmarshal([]byte(`{"N": 4111}`), &number),
		"json: cannot unmarshal string into Go struct field .N of type int8": json.Unmarshal([]byte(`{"N": "canary"}`), &number),
		`Get "http://api/x?***": EOF`:                                        &url.Error{Op: "Get", URL: "http://api/x?card=4111&x=canary", Err: errors.New("EOF")},
		`ERROR: invalid input syntax for type uuid: *** (SQLSTATE 22P02)`:    errors.New(`ERROR: invalid input syntax for type uuid: "4111-canary" (SQLSTATE 22P02)`),
		`ERROR: value *** is out of range for type integer (SQLSTATE 22003)`: errors.New(`ERROR: value "41111111111" is out of range for type integer (SQLSTATE 22003)`),
		`ERROR: duplicate key value violates unique constraint "a" (SQLSTATE 23505): Key (id, b)=(***) already exists.`: said(`ERROR: duplicate key value violates unique constraint "a" (SQLSTATE 23505): Key (id, b)=(4111, a) canary) already exists.`),
		`Failing row contains (***)`: said(`Failing row contains (4111, canary).`),
		`failed to encode args[0]: unable to encode *** into binary format for int4 (OID 23): cannot find encode plan`: errors.New(`failed to encode args[0]: unable to encode "4111-canary" into binary format for int4 (OID 23): cannot find encode plan`),
		`relation "orders" does not exist`: errors.New(`relation "orders" does not exist`),
		`no account for order 17`:          errors.New(`no account for order 17`),
	} {
		got := redact.Error(fmt.Errorf("apply: %w", err))
		require.Equal(t, "apply: "+want, got)
		require.NotContains(t, got, "canary")
		require.NotContains(t, got, "4111")
	}
}

func TestOwn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, value, want string }{
		{"no account acc-17 here", "acc-17", "no account [key] here"},
		{"acc-17", "acc-17", "[key]"},
		{"xaa aa aa", "aa aa", "xaa [key]"},
		{"acc-17acc-17 acc-17, acc-171", "acc-17", "acc-17acc-17 [key], acc-171"},
		{"order 1 of 10", "1", "order 1 of 10"},
		{`bad "say \"hi\"\n"`, "say \"hi\"\n", `bad "[key]"`},
		{"größe 4711é 4711", "4711", "größe 4711é [key]"},
		{"{\"a\":1}: bad", `{"a":1}`, "[key]: bad"},
		{"nothing", "", "nothing"},
	} {
		require.Equal(t, c.want, redact.Own(c.text, "key", []byte(c.value)))
	}
}

func TestOf_KeepsWhatAnErrorIs(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("open password=hunter2: %w", fs.ErrNotExist)
	got := redact.Of(err, nil)
	require.ErrorIs(t, got, fs.ErrNotExist)
	require.EqualError(t, got, "open password=*** file does not exist")
	require.Same(t, got, redact.Of(got, func(error) string { return "again" }))
	require.NoError(t, redact.Of(nil, nil))
	require.EqualError(t, redact.Of(err, func(error) string { return "as asked, token=abc" }), "as asked, token=***")
	require.EqualError(t, redact.Of(err, func(error) string { panic("no") }), "*fmt.wrapError, of which RedactError panics")
}

func TestRules_LeaveTheLastWordToWhoeverHasARedactError(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("open password=hunter2: %w", fs.ErrNotExist)
	got := redact.Rules(err, nil)
	require.EqualError(t, got, "open password=*** file does not exist")
	require.ErrorIs(t, got, fs.ErrNotExist)
	require.Same(t, got, redact.Rules(got, nil))
	require.Same(t, got, redact.Of(got, nil))
	require.EqualError(t, redact.Of(got, func(err error) string { return "not there: " + err.Error()[:4] }), "not there: open")
	done := redact.Of(err, func(error) string { return "not there" })
	require.Same(t, done, redact.Rules(done, nil))
	require.NoError(t, redact.Rules(nil, nil))

	own := func(text string) string { return redact.Own(text, "key", []byte("acc-17")) }
	got = redact.Rules(errors.New("no account acc-17"), own)
	require.EqualError(t, got, "no account [key]")
	require.EqualError(t, redact.Of(got, func(err error) string { return "as asked: " + err.Error() }), "as asked: no account [key]",
		"whatever a RedactError says, what is the record's is not in it")
}

// FuzzText wants a short, valid text of anything, and the same one when it is asked again.
func FuzzText(f *testing.F) {
	f.Add(`ERROR: invalid input syntax for type uuid: "x" (SQLSTATE 22P02)`)
	f.Add(`Get "https://u:p@h/p?q#f": EOF`)
	f.Add("parsing \"\\\": Key (a)=(b) is not present")
	f.Add(strings.Repeat("password=\xff ", 9000))
	f.Fuzz(func(t *testing.T, s string) {
		got := redact.Text(s)
		require.LessOrEqual(t, len(got), redact.MaxText)
		require.True(t, utf8.ValidString(got))
	})
}

// FuzzOwn wants a value that stands alone to be gone.
func FuzzOwn(f *testing.F) {
	f.Add("no account ", "acc-17", " here")
	f.Add("", "\x00\xff\"\\", "x")
	f.Fuzz(func(t *testing.T, before, value, after string) {
		if len(value) < 4 || strings.ContainsAny(value, "[key]") {
			return
		}
		got := redact.Own(before+" "+value+" "+after, "key", []byte(value))
		require.NotContains(t, " "+got+" ", " "+value+" ")
	})
}

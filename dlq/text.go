package dlq

import (
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"strings"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/redact"
	"github.com/headrace/headrace/record"
)

const (
	maxMessage = redact.MaxText
	// shortMessage is what is left of it when the record is nearly as large as the topic takes.
	shortMessage = 256
	maxStack     = 8 << 10
	maxName      = 1 << 10
	// scanned is how much of a payload is looked at for what looks like a secret.
	scanned = 64 << 10
	// grouped is how much of a message counts for its fingerprint.
	grouped = 512
)

// Message is err's text as a dead letter carries it: valid UTF-8, at most 4 KiB and cut between runes. What looks like a
// secret, what follows a URL's "?", and what decoders and databases quote of the data that they could not read is replaced
// by ***. "" for nil.
func Message(err error) string { return redact.Error(err) }

// MessageOf is Message for the error that a record failed with: the record's key, id, header values and value, where one
// stands in the text as a whole, are replaced by their names. by, if not nil, gives the text in place of err.Error().
func MessageOf(r *record.Record, err error, by func(error) string) string {
	if err == nil {
		return ""
	}
	return redact.Text(r.Redact(strings.ToValidUTF8(redact.Head(redact.Said(err, by)), "\uFFFD")))
}

func trim(s string, n int) string { return redact.Trim(s, n) }

// stackOf is the stack of the panic in err.
func stackOf(err error) string {
	var p *fault.PanicError
	if !errors.As(err, &p) {
		return ""
	}
	return trim(redact.Secrets(strings.ToValidUTF8(string(p.Stack), "\uFFFD")), maxStack)
}

// errorType names the type that says most: the outermost that is neither one of the standard library's wraps nor one of
// our verbs, else the innermost.
func errorType(err error) string {
	last := ""
	for err != nil {
		last = reflect.TypeOf(err).String()
		if !isWrap(err) {
			break
		}
		err = unwrap(err)
	}
	return trim(strings.ToValidUTF8(last, "\uFFFD"), maxName)
}

func isWrap(err error) bool {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.PkgPath() {
	case "errors", "fmt", "github.com/pkg/errors":
		return true
	}
	_, panicked := err.(*fault.PanicError) //nolint:errorlint // this level only: the loop goes through the levels
	return t.PkgPath() == reflect.TypeFor[fault.Fault]().PkgPath() && !panicked
}

// unwrap goes one level down, into the first of a join.
func unwrap(err error) error {
	switch w := err.(type) { //nolint:errorlint // this level only
	case interface{ Unwrap() error }:
		return w.Unwrap()
	case interface{ Unwrap() []error }:
		if all := w.Unwrap(); len(all) > 0 {
			return all[0]
		}
	}
	return nil
}

// fingerprint is a hash of reason, type and message, without what varies from record to record.
func fingerprint(reason Reason, errorType, message string) string {
	h := fnv.New64a()
	for _, part := range []string{string(reason), errorType, shape(message)} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

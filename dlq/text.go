package dlq

import (
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/headrace/headrace/fault"
)

const (
	maxMessage = 4 << 10
	// shortMessage is what is left of it when the record is nearly as large as the topic takes.
	shortMessage = 256
	maxStack     = 8 << 10
	maxName      = 1 << 10
	// scanned is how much of an error's text is looked at. Secrets are replaced before the text is cut, so that no half
	// of one stays.
	scanned = 64 << 10
	// grouped is how much of a message counts for its fingerprint.
	grouped = 512
)

// Message is err's text as a dead letter carries it: valid UTF-8, what looks like a secret replaced by ***, at most
// 4 KiB and cut between runes. "" for nil.
func Message(err error) string {
	if err == nil {
		return ""
	}
	text := errorText(err)
	if len(text) <= scanned {
		return trim(redact(strings.ToValidUTF8(text, "\uFFFD")), maxMessage)
	}
	// Cut at a space: a secret has none, so none is cut in two.
	head := text[:scanned]
	if i := strings.LastIndexAny(head, " \n\t"); i > 0 {
		head = head[:i]
	}
	return trim(redact(strings.ToValidUTF8(head, "\uFFFD")), maxMessage)
}

// errorText asks an error for its text. A typed nil pointer in an error panics when it is asked.
func errorText(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("%T that panics when asked for its text", err)
		}
	}()
	return err.Error()
}

// trim cuts s to at most n bytes, between runes, and marks where.
func trim(s string, n int) string {
	const mark = "…"
	if len(s) <= n {
		return s
	}
	n -= len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}

// secret is something that looks like one. The pattern is tried only on texts with one of its signs, in lower case: a
// regular expression reads a few bytes a microsecond, and most texts have none.
type secret struct {
	signs   []string
	pattern *regexp.Regexp
	instead string
}

var secrets = []secret{
	// The user part of a URL. An unescaped "/" or "@" in a password is broken but seen, in DSNs; in http's URLs a later
	// "@" is part of a path.
	{
		[]string{"://"},
		regexp.MustCompile(`(?i)\b(postgres(?:ql)?|mysql|mongodb|mongodb\+srv|rediss?|amqps?|kafka|sqlserver|clickhouse|nats|s?ftp|ssh|smtp)://\S*@`),
		"$1://***@",
	},
	{[]string{"://"}, regexp.MustCompile(`://[^\s/?#]*@`), "://***@"},
	{[]string{"@tcp(", "@unix(", "@udp("}, regexp.MustCompile(`[^\s:@/"'(]+:\S+@(tcp|unix|udp)\(`), "***@$1("},
	// name=value and "name": "value".
	{
		[]string{"passw", "pwd", "secret", "token", "key", "credential"},
		regexp.MustCompile(`(?i)((?:password|passwd|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)` +
			`(?:"?\s*=\s*|"\s*:\s*|:\s*))("(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.|'')*'?|[^\s,;&"']+)`),
		"$1***",
	},
	{
		[]string{"authorization"},
		regexp.MustCompile(`(?i)(authorization"?\s*[:=]\s*"?(?:\[)?)(?:(?:basic|bearer|digest|token)\s+)?[^\s"\]]+`),
		"$1***",
	},
	{[]string{"bearer"}, regexp.MustCompile(`(?i)\b(bearer)\s+[a-z0-9+/=._~-]{8,}`), "$1 ***"},
	// Tokens that are known by their looks: AWS, JWT, GitHub, Stripe, Slack.
	{[]string{"akia", "asia"}, regexp.MustCompile(`\b(?:AKIA|ASIA)[0-9A-Z]{16}\b`), "***"},
	{[]string{"eyj"}, regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?`), "***"},
	{
		[]string{"gho_", "ghp_", "ghr_", "ghs_", "ghu_", "sk_live_", "sk_test_", "xox"},
		regexp.MustCompile(`\b(?:gh[oprsu]_|sk_live_|sk_test_|xox[abpr]-)[A-Za-z0-9-]{8,}`),
		"***",
	},
}

// redact replaces what looks like a secret. It rather takes too much: a message is for people to read, and what it lacks
// is in the application's log.
func redact(s string) string {
	lower := strings.ToLower(s)
	for _, secret := range secrets {
		if secret.signed(lower) {
			s = secret.pattern.ReplaceAllString(s, secret.instead)
		}
	}
	return s
}

func (s secret) signed(lower string) bool {
	for _, sign := range s.signs {
		if strings.Contains(lower, sign) {
			return true
		}
	}
	return false
}

// stackOf is the stack of the panic in err.
func stackOf(err error) string {
	var p *fault.PanicError
	if !errors.As(err, &p) {
		return ""
	}
	return trim(redact(strings.ToValidUTF8(string(p.Stack), "\uFFFD")), maxStack)
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

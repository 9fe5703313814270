package redact

import (
	"regexp"
	"strings"
)

// pattern is something that must not leave. It is tried only on texts with one of its signs, in lower case: a regular
// expression reads a few bytes a microsecond, and most texts have none.
type pattern struct {
	signs   []string
	pattern *regexp.Regexp
	instead string
}

var secrets = []pattern{
	// The user part of a URL. An unescaped "/" or "@" in a password is broken but seen, in DSNs; in http's URLs a later
	// "@" is part of a path.
	{
		[]string{"://"},
		regexp.MustCompile(`(?i)\b(postgres(?:ql)?|mysql|mongodb|mongodb\+srv|rediss?|amqps?|kafka|sqlserver|clickhouse|nats|s?ftp|ssh|smtp)://\S*@`),
		"$1://***@",
	},
	{[]string{"://"}, regexp.MustCompile(`://[^\s/?#]*@`), "://***@"},
	// What is asked for in a web address, by a query or in a fragment: card numbers, mail addresses, signatures.
	{[]string{"://"}, regexp.MustCompile(`(?i)(\b(?:https?|wss?)://[^\s"'?#<>]*[?#])[^\s"'<>]+`), "$1***"},
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

// quoted is a value in double quotes, with or without escapes in it, that may have lost its end.
const quoted = `"(?:[^"\\]|\\.)*"?`

// values are what the standard library, pgx and Postgres quote of what they were given and could not read.
var values = []pattern{
	// encoding/json
	{[]string{"cannot unmarshal"}, regexp.MustCompile(`(cannot unmarshal (?:JSON )?(?:number|string)) (?:` + quoted + `|[-+.\deE]+) (into|of type|within)`), "$1 $2"},
	{[]string{"trying to unmarshal"}, regexp.MustCompile(`(trying to unmarshal) .+ (into)`), "$1 *** $2"},
	{[]string{"unknown field"}, regexp.MustCompile(`(unknown field) ` + quoted), "$1 ***"},
	// strconv, time, net, uuid
	{[]string{"parsing"}, regexp.MustCompile(`(parsing(?: time)?) ` + quoted), "$1 ***"},
	{[]string{"cannot parse"}, regexp.MustCompile(`(cannot parse) ` + quoted), "$1 ***"},
	{[]string{"time: "}, regexp.MustCompile(`(time: (?:invalid duration|missing unit in duration|unknown unit)) ` + quoted + `(?: in duration ` + quoted + `)?`), "$1 ***"},
	{[]string{"parseaddr(", "parseprefix(", "parseaddrport("}, regexp.MustCompile(`(Parse\w+)\(` + quoted + `\)`), "$1(***)"},
	{[]string{"urn prefix"}, regexp.MustCompile(`(invalid urn prefix:) ` + quoted), "$1 ***"},
	// Postgres: a value stands behind a colon, names do not; but for two messages.
	{
		[]string{"invalid input", "malformed", "out of range", "invalid value", "invalid byte sequence"},
		regexp.MustCompile(`((?:invalid input|malformed|invalid value|date/time field value out of range|time zone displacement out of range)[^:\n]*:) ` + quoted), "$1 ***",
	},
	{[]string{"out of range for type"}, regexp.MustCompile(`(value) ` + quoted + ` (is out of range for type)`), "$1 *** $2"},
	{[]string{"key ("}, regexp.MustCompile(`(?i)(\bkey \([^)]*\)=\().*?(\) (?:already exists|is not present|is still referenced|conflicts)|$)`), "$1***$2"},
	{[]string{"failing row contains"}, regexp.MustCompile(`(?i)(failing row contains \().*`), "$1***)"},
	// pgx
	{[]string{"unable to encode"}, regexp.MustCompile(`(unable to encode) .+? (into (?:binary|text) format)`), "$1 *** $2"},
	{[]string{"is greater than maximum value", "is less than minimum value"}, regexp.MustCompile(`-?\d+ (is (?:greater than maximum|less than minimum) value)`), "*** $1"},
}

// Secrets replaces what looks like a secret.
func Secrets(s string) string { return replace(s, secrets) }

// Values replaces what well-known libraries quote of the data that they were given.
func Values(s string) string { return replace(s, values) }

func replace(s string, patterns []pattern) string {
	lower := strings.ToLower(s)
	for _, p := range patterns {
		if p.signed(lower) {
			s = p.pattern.ReplaceAllString(s, p.instead)
		}
	}
	return s
}

func (p pattern) signed(lower string) bool {
	for _, sign := range p.signs {
		if strings.Contains(lower, sign) {
			return true
		}
	}
	return false
}

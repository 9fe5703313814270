package dedup

import "strings"

// statements knows which SQL a handler may not run. It remembers what it has seen, because a handler's texts are few and
// come again with every record. It belongs to one writer.
type statements struct {
	solo bool // each record has a transaction of its own: what is local to it leaks to nobody
	seen map[string]error
}

// maxSeen bounds the memory that generated SQL could take.
const maxSeen = 2048

func (s *statements) check(sql string) error {
	if err, ok := s.seen[sql]; ok {
		return err
	}
	err := s.scan(sql)
	if s.seen == nil {
		s.seen = make(map[string]error)
	}
	if len(s.seen) < maxSeen {
		s.seen[strings.Clone(sql)] = err
	}
	return err
}

// scan looks at each statement of the text: its first words, and whether a function among its words changes the session.
func (s *statements) scan(sql string) error {
	var head []string
	for sc := (scanner{text: sql}); ; {
		word, ok := sc.next()
		switch {
		case !ok:
			return s.refuse(head)
		case word == ";":
			if err := s.refuse(head); err != nil {
				return err
			}
			head = head[:0]
		case s.leaks(word):
			return &TxError{Statement: word, Why: "it changes the session for the records that come after"}
		case len(head) < 4:
			head = append(head, word)
		}
	}
}

const (
	whyEnds  = "it would end the transaction that this record shares with others"
	whyLeaks = "it would hold for the records that come after"
	whyOurs  = "the savepoint is the inbox's"
	// savepoint is the inbox's own.
	savepoint = "headrace"
)

func (s *statements) refuse(head []string) error {
	at := func(i int) string {
		if i < len(head) {
			return head[i]
		}
		return ""
	}
	why, words := "", 1
	switch at(0) {
	case "commit", "end", "abort", "begin", "start":
		why = whyEnds
	case "rollback":
		why = rollbackWhy(head)
	case "prepare":
		if at(1) == "transaction" {
			why, words = whyEnds, 2
		}
	case "savepoint", "release":
		if at(len(head)-1) == savepoint {
			why = whyOurs
		}
	case "set", "reset", "discard", "listen", "unlisten", "load", "deallocate":
		if !s.solo || !perTransaction(at(0), at(1)) {
			why, words = whyLeaks, 2
		}
	case "create":
		if temporary(head) {
			why, words = "a temporary table would still be there for the records that come after", 2
		}
	}
	if why == "" {
		return nil
	}
	return &TxError{Statement: strings.Join(head[:min(words, len(head))], " "), Why: why}
}

// rollbackWhy lets pass the rollback to a savepoint of the handler's own.
func rollbackWhy(head []string) string {
	for i, word := range head {
		switch {
		case i > 0 && word == "to" && head[len(head)-1] == savepoint:
			return whyOurs
		case i > 0 && word == "to":
			return ""
		}
	}
	return whyEnds
}

func perTransaction(verb, next string) bool {
	return verb == "set" && (next == "local" || next == "constraints" || next == "transaction")
}

func temporary(head []string) bool {
	for _, word := range head[1:] {
		if word == "temp" || word == "temporary" {
			return true
		}
	}
	return false
}

// leaks knows the functions that outlive the record.
func (s *statements) leaks(word string) bool {
	switch word {
	case "set_config":
		return !s.solo
	case "pg_advisory_lock", "pg_advisory_lock_shared", "pg_try_advisory_lock", "pg_try_advisory_lock_shared",
		"pg_advisory_unlock", "pg_advisory_unlock_shared", "pg_advisory_unlock_all":
		return true
	}
	return false
}

// scanner gives the unquoted words of a text in lower case, and ";". It jumps over comments, literals and quoted names,
// where a word is no keyword.
type scanner struct {
	text string
	at   int
}

func (s *scanner) next() (string, bool) {
	for s.at < len(s.text) {
		rest := s.text[s.at:]
		switch c := rest[0]; {
		case wordStart(c):
			n := wordLen(rest)
			s.at += n
			if n == 1 && s.at < len(s.text) && s.text[s.at] == '\'' && (c == 'e' || c == 'E') {
				s.at += quoted(s.text[s.at:], '\'', true)
				continue
			}
			return strings.ToLower(rest[:n]), true
		case c == ';':
			s.at++
			return ";", true
		default:
			s.at += jump(rest)
		}
	}
	return "", false
}

// jump is the length of what starts here and is no word.
func jump(s string) int {
	switch {
	case s[0] == '\'' || s[0] == '"':
		return quoted(s, s[0], false)
	case strings.HasPrefix(s, "--"):
		return until(s, "\n")
	case strings.HasPrefix(s, "/*"):
		return comment(s)
	case s[0] == '$':
		return dollar(s)
	case '0' <= s[0] && s[0] <= '9':
		return wordLen(s)
	}
	return 1
}

func wordStart(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}

func wordLen(s string) int {
	for i := range len(s) {
		if c := s[i]; !wordStart(c) && c != '$' && (c < '0' || c > '9') {
			return i
		}
	}
	return len(s)
}

func until(s, end string) int {
	if i := strings.Index(s, end); i >= 0 {
		return i + len(end)
	}
	return len(s)
}

// quoted is the length of a literal or a quoted name; a doubled quote is one of its characters.
func quoted(s string, quote byte, escapes bool) int {
	for i := 1; i < len(s); i++ {
		switch {
		case escapes && s[i] == '\\':
			i++
		case s[i] == quote && i+1 < len(s) && s[i+1] == quote:
			i++
		case s[i] == quote:
			return i + 1
		}
	}
	return len(s)
}

// comment is the length of a block comment: they nest.
func comment(s string) int {
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch s[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			i++
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}

// dollar is the length of a dollar-quoted literal, or of a parameter ($1).
func dollar(s string) int {
	n := 1
	for n < len(s) && (wordStart(s[n]) || '0' <= s[n] && s[n] <= '9') {
		n++
	}
	if n == len(s) || s[n] != '$' || n > 1 && !wordStart(s[1]) {
		return n
	}
	tag := s[:n+1]
	return len(tag) + until(s[len(tag):], tag)
}

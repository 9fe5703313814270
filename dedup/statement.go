package dedup

import (
	"fmt"
	"slices"
	"strings"
)

// statements knows which SQL a handler may not run. It remembers what it has seen, because a handler's texts are few and
// come again with every record. It belongs to one writer.
type statements struct {
	solo bool // each record has a transaction of its own: what is local to it leaks to nobody
	// queued: the texts are for a pipeline, where each has one result.
	queued bool
	seen   map[string]seen
}

// seen is what is known of a text.
type seen struct {
	err   error // why a handler may not run it
	saves bool  // it makes a savepoint, or says that word
}

// maxSeen bounds the memory that generated SQL could take.
const maxSeen = 2048

func (s *statements) check(sql string) error { return s.look(sql).err }

func (s *statements) look(sql string) seen {
	if known, ok := s.seen[sql]; ok {
		return known
	}
	known := seen{err: s.scan(sql), saves: strings.Contains(strings.ToLower(sql), "savepoint")}
	if s.seen == nil {
		s.seen = make(map[string]seen)
	}
	if len(s.seen) < maxSeen {
		s.seen[strings.Clone(sql)] = known
	}
	return known
}

// scan looks at each statement of the text: its first words, and whether anything among its words outlives the record.
func (s *statements) scan(sql string) error {
	var st statement
	n := 0 // statements before this one
	for sc := (scanner{text: sql}); ; {
		word, ok := sc.next()
		switch {
		case !ok:
			if err := s.refuse(&st); err != nil {
				return err
			}
			return s.refuseCount(n + st.count())
		case word == ";":
			if err := s.refuse(&st); err != nil {
				return err
			}
			n += st.count()
			st = statement{head: st.head[:0]}
		case hidden(word):
			return &TxError{Statement: word, Why: whyHides}
		case name(word) == "pg_settings" && st.updates:
			return &TxError{Statement: "update pg_settings", Why: whyLeaks}
		case s.leaks(name(word), sc) && sc.atCall():
			return &TxError{Statement: name(word), Why: "it changes the session for the records that come after"}
		default:
			st.add(word)
		}
	}
}

// maxHead is how many words of a statement may matter for what it is: the longest is a cursor's declaration.
const maxHead = 12

// statement is what scan has seen of one statement.
type statement struct {
	head []string // its first words; quoted names have their quotes
	// last are the words before this one, the nearest first.
	last [2]string
	// making says that a "temp" now would be of what is made: after CREATE and SELECT … INTO.
	making bool
	// temp: it makes something that lives as long as the session; drops: but for ON COMMIT DROP.
	temp, drops bool
	// updates: an UPDATE has begun, of this statement or of one in its WITH.
	updates bool
}

func (st *statement) add(word string) {
	if len(st.head) < maxHead {
		st.head = append(st.head, word)
	}
	switch {
	case len(st.head) == 1 && word == "create":
		st.making = true
	case word == "into":
		st.making = st.last[0] != "insert" && st.last[0] != "merge" // there, temp would be the table's name
	case word == "temp", word == "temporary":
		st.temp = st.temp || st.making
		st.making = false
	case temporarySchema(name(word)):
		st.temp = st.temp || st.making || st.head[0] == "create"
		st.making = false
	case word == "drop" && st.last == [2]string{"commit", "on"}:
		st.drops = true
	case word != "or" && word != "replace" && word != "local" && word != "global":
		st.making = false
	}
	st.updates = st.updates || word == "update"
	st.last = [2]string{word, st.last[0]}
}

func (st *statement) at(i int) string {
	if i < len(st.head) {
		return st.head[i]
	}
	return ""
}

// named says whether the statement ends with the name of the inbox's savepoint.
func (st *statement) named() bool { return name(st.last[0]) == savepoint }

// temporarySchema knows the session's own schema by its alias and by its real names.
func temporarySchema(name string) bool {
	rest, ok := strings.CutPrefix(name, "pg_temp")
	return ok && (rest == "" || strings.HasPrefix(rest, "_") && strings.Trim(rest[1:], "0123456789") == "")
}

const (
	whyHides = "a name with Unicode escapes hides what it is"
	whyEnds  = "it would end the transaction that this record shares with others"
	whyLeaks = "it would hold for the records that come after"
	whyOurs  = "the savepoint is the inbox's"
	whyStays = "it would still be there for the records that come after"
	whyOne   = "what is queued has one result a text: queue each statement for itself"
	whyCopy  = "it would take over the connection that the queued statements of other records are sent on"
	whyTemp  = "what is temporary would still be there for the records that come after"
	// savepoint is the inbox's own.
	savepoint = "headrace"
)

// count is 0 for what is no statement: nothing but blanks and comments.
func (st *statement) count() int { return min(len(st.head), 1) }

func (s *statements) refuseCount(n int) error {
	switch {
	case !s.queued || n == 1:
		return nil
	case n == 0:
		return &TxError{Statement: "an empty text", Why: whyOne}
	}
	return &TxError{Statement: fmt.Sprintf("a text of %d statements", n), Why: whyOne}
}

func (s *statements) refuse(st *statement) error {
	why, words := "", 1
	switch st.at(0) {
	case "commit", "end", "abort", "begin", "start":
		why = whyEnds
	case "rollback":
		why = st.rollbackWhy()
	case "prepare":
		if why = whyStays; st.at(1) == "transaction" {
			why, words = whyEnds, 2
		}
	case "copy":
		if s.queued {
			why = whyCopy
		}
	case "declare":
		if !s.solo || st.holds() {
			why = whyStays
		}
	case "savepoint", "release":
		if st.named() {
			why = whyOurs
		}
	case "set", "reset", "discard", "listen", "unlisten", "load", "deallocate":
		if !s.solo || !perTransaction(st.at(0), st.at(1)) {
			why, words = whyLeaks, 2
		}
	default:
		if st.temp && (!s.solo || !st.drops) {
			why, words = whyTemp, st.tempWords()
		}
	}
	if why == "" {
		return nil
	}
	return &TxError{Statement: strings.Join(st.head[:min(words, len(st.head))], " "), Why: why}
}

// tempWords is how many words tell what it is: "create temp", "select".
func (st *statement) tempWords() int {
	if st.at(0) == "create" {
		return 2
	}
	return 1
}

// rollbackWhy lets pass the rollback to a savepoint of the handler's own.
func (st *statement) rollbackWhy() string {
	switch {
	case !slices.Contains(st.head, "to"):
		return whyEnds
	case st.named():
		return whyOurs
	}
	return ""
}

// holds says whether a cursor outlives its transaction: DECLARE … CURSOR WITH HOLD FOR ….
func (st *statement) holds() bool {
	for i, word := range st.head {
		switch {
		case word == "for":
			return false
		case word == "with" && st.at(i+1) == "hold":
			return true
		}
	}
	return false
}

func perTransaction(verb, next string) bool {
	return verb == "set" && (next == "local" || next == "constraints" || next == "transaction")
}

// leaks knows the functions that outlive the record; their arguments come next. What set_config sets outlives the
// transaction too, unless its last argument is true: any other expression could be anything.
func (s *statements) leaks(function string, arguments scanner) bool {
	switch function {
	case "set_config":
		return !s.solo || !arguments.endInTrue()
	case "pg_advisory_lock", "pg_advisory_lock_shared", "pg_try_advisory_lock", "pg_try_advisory_lock_shared",
		"pg_advisory_unlock", "pg_advisory_unlock_shared", "pg_advisory_unlock_all":
		return true
	}
	return false
}

// hidden says whether word is a name whose characters may be escaped: U&"\0061".
func hidden(word string) bool { return strings.HasPrefix(word, `u&"`) }

// name is a word without the quotes that keep it from being a keyword.
func name(word string) string { return strings.Trim(word, `"`) }

// scanner gives the words of a text in lower case, its quoted names with their quotes and as they are, and ";". It jumps
// over comments and literals.
type scanner struct {
	text string
	at   int
}

func (s *scanner) next() (string, bool) {
	for {
		token, ok := s.token()
		if !ok || wordStart(token[0]) || token[0] == '"' || token[0] == ';' {
			return token, ok
		}
	}
}

// token also gives what is no word, by its first byte: a literal, a number, an operator, a bracket.
func (s *scanner) token() (string, bool) {
	for s.at < len(s.text) {
		rest := s.text[s.at:]
		switch c := rest[0]; {
		case wordStart(c):
			n := wordLen(rest)
			s.at += n
			if n == 1 && (c == 'u' || c == 'U') && strings.HasPrefix(s.text[s.at:], `&"`) {
				n += 1 + quoted(s.text[s.at+1:], '"', false)
				s.at += n - 1
				return strings.ToLower(rest[:n]), true
			}
			if n == 1 && s.at < len(s.text) && s.text[s.at] == '\'' && (c == 'e' || c == 'E') {
				s.at += quoted(s.text[s.at:], '\'', true)
				return "'", true
			}
			return strings.ToLower(rest[:n]), true
		case c == '"':
			n := quoted(rest, '"', false)
			s.at += n
			return rest[:n], true
		case strings.IndexByte(" \t\n\r\f\v", c) >= 0, strings.HasPrefix(rest, "--"), strings.HasPrefix(rest, "/*"):
			s.at += jump(rest)
		default:
			s.at += jump(rest)
			return rest[:1], true
		}
	}
	return "", false
}

// atCall says whether an argument list comes next.
func (s scanner) atCall() bool {
	token, _ := s.token()
	return token == "("
}

// endInTrue says whether the last argument of the list that comes next is the keyword true.
func (s scanner) endInTrue() bool {
	depth := 0
	for last := [2]string{}; ; {
		token, ok := s.token()
		switch token {
		case "(":
			depth++
		case ")":
			depth--
		}
		if !ok || depth == 0 {
			return ok && last == [2]string{",", "true"}
		}
		last = [2]string{last[1], token}
	}
}

// jump is the length of what starts here and is no word.
func jump(s string) int {
	switch {
	case s[0] == '\'':
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

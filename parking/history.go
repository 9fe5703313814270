package parking

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Failure is how one round of a record ended.
type Failure struct {
	// At is when, by the clock of the process that ran it.
	At time.Time `json:"at"`
	// Attempts are those that were charged in the round.
	Attempts int `json:"attempts"`
	// Class is the error's, as fault spells it.
	Class string `json:"class"`
	// Message is the error's text as a dead letter has it: what looks like a secret is replaced.
	Message string `json:"message"`
}

const (
	// maxText bounds a Failure's message in bytes, so that the history of all rounds stays small beside its record.
	maxText = 512
	// maxHistory is how many failures are kept: the first one and the latest.
	maxHistory = 20
)

// History is what a record's rounds ended with, the first one first. The zero value is that of a record that was not
// tried yet.
type History []Failure

// With is h and one more. Of a long one the middle is forgotten.
func (h History) With(f Failure) History {
	f.Message = cut(f.Message, maxText)
	f.At = f.At.UTC().Truncate(time.Millisecond)
	all := slices.Concat(h, History{f})
	if over := len(all) - maxHistory; over > 0 {
		all = append(all[:1:1], all[1+over:]...)
	}
	return all
}

// String is a line a round, as a dead letter has it.
func (h History) String() string {
	var b strings.Builder
	for i, f := range h {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s %s after %d attempts: %s", f.At.Format(time.RFC3339), f.Class, f.Attempts,
			strings.ReplaceAll(cut(f.Message, 120), "\n", " "))
	}
	return b.String()
}

// encode is nil for none.
func (h History) encode() []byte {
	if len(h) == 0 {
		return nil
	}
	b, err := json.Marshal(h)
	if err != nil {
		return nil // texts and numbers: it cannot be, but for a time beyond the year 9999
	}
	return b
}

// DecodeHistory reads a history as the table has it; nothing is none.
func DecodeHistory(b []byte) (h History, err error) {
	if len(b) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(b, &h); err != nil {
		return nil, fmt.Errorf("history of a parked record: %w", err)
	}
	return h, nil
}

// cut cuts s to at most n bytes, between runes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}

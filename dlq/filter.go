package dlq

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Filter says which letters are meant. It is the same for listing, showing and replaying, so that a dry run shows exactly
// what a replay sends. Each field that is set must match, by any of its values; the zero Filter matches every letter.
type Filter struct {
	// Formats are whose letters.
	Formats []Format
	// Reasons are why they are dead. Only our own letters say so.
	Reasons []Reason
	// Sources are the topics that the records were first read from.
	Sources []string
	// Groups and Routes are for whom they are dead.
	Groups, Routes []string
	// Keys are the records' keys, byte for byte; "" is the empty key, and no value is the missing one.
	Keys []string
	// IDs are identities: as the producer wrote them, or as the inbox stores them. Of other systems' letters it is what
	// CloudEvents' and Watermill's headers say.
	IDs []string
	// At are places: where a record was first read, or where its letter stands. A letter that is named by the place where
	// it stands is meant although the record has a later one.
	At []Coordinates
	// Since and Until bound when the record failed last, or when its letter was written where it does not say: at or
	// after Since, before Until. Zero: no bound.
	Since, Until time.Time
}

// Validate says what can never match, naming the value and what is allowed.
func (f Filter) Validate() error {
	for _, format := range f.Formats {
		if !slices.Contains(Formats[:], format) {
			return fmt.Errorf("unknown format %q: it is one of %s", trim(string(format), maxName), join(Formats[:]))
		}
	}
	for _, reason := range f.Reasons {
		if !slices.Contains(Reasons[:], reason) {
			return fmt.Errorf("unknown reason %q: it is one of %s", trim(string(reason), maxName), join(Reasons[:]))
		}
	}
	for _, c := range f.At {
		if !c.Known() {
			return fmt.Errorf("place %q is not topic/partition/offset, like orders/3/4711", c)
		}
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return fmt.Errorf("nothing is at or after %s and before %s", f.Since.Format(time.RFC3339), f.Until.Format(time.RFC3339))
	}
	return nil
}

func join[S ~string](all []S) string {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}

// Match says whether e is meant.
func (f Filter) Match(e *Entry) bool {
	env := &e.Envelope
	return among(f.Formats, e.Format) && among(f.Reasons, env.Reason) && among(f.Sources, env.Origin.Topic) &&
		among(f.Groups, env.Group) && among(f.Routes, env.Route) &&
		f.matchKey(e.Key) && f.matchID(env) && f.matchPlace(e) && f.matchTime(e.Failed())
}

// among is true without any values: a field that is not set.
func among[S comparable](values []S, v S) bool {
	return len(values) == 0 || slices.Contains(values, v)
}

func (f Filter) matchKey(key []byte) bool {
	return len(f.Keys) == 0 || key != nil && slices.Contains(f.Keys, string(key))
}

func (f Filter) matchID(env *Envelope) bool {
	if len(f.IDs) == 0 {
		return true
	}
	return slices.ContainsFunc(f.IDs, func(id string) bool {
		return id != "" && (id == env.Identity() || env.MessageID != uuid.Nil && strings.EqualFold(id, env.MessageID.String()))
	})
}

func (f Filter) matchPlace(e *Entry) bool {
	return len(f.At) == 0 || slices.Contains(f.At, e.Envelope.Origin) || slices.Contains(f.At, e.Place())
}

// names says whether the very letter is meant, and not just its record.
func (f Filter) names(e *Entry) bool { return slices.Contains(f.At, e.Place()) }

func (f Filter) matchTime(failed time.Time) bool {
	return (f.Since.IsZero() || !failed.Before(f.Since)) && (f.Until.IsZero() || failed.Before(f.Until))
}

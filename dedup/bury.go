package dedup

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/headrace/headrace/record"
)

// Grave is why a record is dead.
type Grave struct {
	// Reason is the dead letter's: permanent, exhausted, id_conflict, …
	Reason string
	// Err is the last error's text, without payloads or secrets. It is cut to 1 KiB.
	Err string
}

// reasonConflict is the one reason that the inbox itself knows: the identity is another record's.
const reasonConflict = "id_conflict"

const maxErrText = 1024 // bytes

// Bury writes r's dead row and returns when that is committed: only then may a dead letter be produced. The same
// statement looks whether there is anything to bury:
//
//   - Buried, DeadOwn: it is dead now, or was already at these coordinates: produce, then settle as dead;
//   - Own, OwnSkipped: it was effected or skipped after all: settle so (Answer.Outcome), no dead letter;
//   - Duplicate: another record with this identity was dealt with: settle so, no dead letter.
//
// A record whose identity belongs to another one (Reason id_conflict, or found so here) is buried under the coordinates
// where it was first read. A record of the replay topic that fails again is dead again, in the row that it has.
//
// Calls that come together share a transaction. The error is fault.Busy when another member has the identity in hand,
// fault.Unavailable when the database is away, or the cause of ctx; then the row may or may not be there, and asking
// again is safe.
func (rt *Route) Bury(ctx context.Context, r *record.Record, g Grave) (Answer, error) {
	if r.Replay && rt.replays != nil {
		return rt.replays.Bury(ctx, r, g)
	}
	rt.recall(r)
	b := newBurial(r, g, rt.placed())
	if err := rt.graves.add(b); err != nil {
		return unseen, err
	}
	select {
	case <-b.done:
		return b.answer, b.err
	case <-ctx.Done():
		return unseen, context.Cause(ctx)
	}
}

// burial is one Bury.
type burial struct {
	r      *record.Record
	lease  lease // of an offset store
	id     record.Identity
	place  uuid.UUID // its key when the identity is another record's: of a replay that of its first reading
	replay bool
	reason string
	text   string

	done   chan struct{} // closed when answer or err is there
	answer Answer
	err    error
}

func newBurial(r *record.Record, g Grave, placed bool) *burial {
	if r.Identity.ID == "" {
		_ = Identify(r) // without a chain it cannot fail
	}
	b := &burial{
		r: r, id: r.Identity, place: r.Identity.Place, replay: r.Replay,
		reason: clean(g.Reason), text: clean(g.Err), done: make(chan struct{}),
	}
	if g.Reason == reasonConflict || placed {
		b.id.Key = b.place
	}
	if placed { // no other record has it: its value does not matter
		b.id.ValueHash = 0
	}
	return b
}

// clean makes a text that Postgres takes: valid UTF-8, no NUL, cut at a rune.
func clean(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) <= maxErrText {
		return s
	}
	n := maxErrText
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func (b *burial) settle(a Answer, err error) {
	b.answer, b.err = a, err
	close(b.done)
}

package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/dedup"
)

// The formats that are promised to whoever reads our topics and tables, written down a second time: the audit must not
// believe the engine about them.
const (
	uuidHeader   = "_watermill_message_uuid"
	idHeader     = "ce_id"
	markHeader   = "headrace-dlq"
	effectedRow  = 0
	skippedRow   = 1
	deadRow      = 2
	mostFindings = 10
)

// tally is the ledger of one route.
type tally struct{ Records, Effected, Duplicate, Skipped, Dead, Parked int }

// place is where a record stands.
type place struct {
	partition int32
	offset    int64
}

func placeOf(r *kgo.Record) place { return place{r.Partition, r.Offset} }

func (p place) String() string { return fmt.Sprintf("%d/%d", p.partition, p.offset) }

// effect is a row that a handler wrote.
type effect struct {
	id, key  string
	seq      int64
	replayed bool // of a record that was read from the replay topic
}

// inboxRow is what the inbox says of an id.
type inboxRow struct {
	State       int16
	Coordinates int64
	Original    *int64 // of a record that was replayed: the coordinates that it had first
	Reason      *string
}

// is says that the row is of the record that was first read there.
func (r inboxRow) is(coordinates int64) bool {
	return r.Original == nil && r.Coordinates == coordinates || r.Original != nil && *r.Original == coordinates
}

// books are everything that the audit of one route looks at.
type books struct {
	route    string
	byOffset bool // only what died, or was replayed, has a row
	topicID  uuid.UUID
	records  []*kgo.Record
	byHash   map[int64]*kgo.Record // by coordinates, as the inbox stores them
	effects  map[place][]effect    // also those of its replays
	letters  map[place][]letter
	rows     map[uuid.UUID]inboxRow
	parked   map[place]bool
	findings []string
}

func (b *books) complain(format string, args ...any) {
	b.findings = append(b.findings, fmt.Sprintf(format, args...))
}

// audit counts the ledger of each of the world's routes and fails the test on the first that does not add up.
func (w *world) audit() map[string]tally {
	w.t.Helper()
	records := w.read(w.topic)
	letters, replays := w.readLetters(), w.readReplays()
	got := map[string]tally{}
	for _, route := range w.routes {
		b := w.books(route, records, letters[route], replays)
		got[route] = b.count()
		if w.payments != nil {
			w.payments.audit(b)
		}
		require.Empty(w.t, b.findings[:min(len(b.findings), mostFindings)],
			"route %s: %d findings, ledger %+v", route, len(b.findings), got[route])
	}
	require.Empty(w.t, letters[""], "letters of nobody's route")
	w.auditOffsets(w.topic, records)
	w.auditOffsets(w.replayTopic(), replays)
	return got
}

// one is the audit of a world with one route.
func (w *world) one() tally {
	w.t.Helper()
	require.Len(w.t, w.routes, 1)
	return w.audit()[w.routes[0]]
}

func (w *world) books(route string, records []*kgo.Record, letters map[place][]letter, replays []*kgo.Record) *books {
	w.t.Helper()
	b := &books{
		route: route, byOffset: w.store == dedup.ByOffset, topicID: w.topicID(w.topic), records: records, byHash: map[int64]*kgo.Record{},
		effects: w.effects(route), letters: letters, rows: w.inbox(route), parked: w.parked(route),
	}
	known := map[place]*kgo.Record{}
	for _, r := range records {
		hash, _ := b.coordinates(r)
		b.byHash[hash], known[placeOf(r)] = r, r
	}
	if len(replays) > 0 {
		b.replayed(w.topicID(w.replayTopic()), replays, known, w.effectsIn(w.replayTopic(), route))
	}
	return b
}

// replayed enters what became of replays under the places where their records were first read.
func (b *books) replayed(topicID uuid.UUID, replays []*kgo.Record, first map[place]*kgo.Record, effects map[place][]effect) {
	for _, r := range replays {
		l, ok := openLetter(r)
		at, whole := l.place()
		switch {
		case !ok || !whole || first[at] == nil:
			b.complain("replay %s is of no record", placeOf(r))
			continue
		case l.fields["headrace-route"] != b.route:
			continue // effects of it are left in the map
		case l.differs(first[at]) != "":
			b.complain("replay %s of %s has another %s", placeOf(r), at, l.differs(first[at]))
		case len(b.letters[at]) == 0:
			b.complain("replay %s is of %s, which has no dead letter", placeOf(r), at)
		}
		hash, _ := coordinates(topicID, r)
		b.byHash[hash] = first[at]
		for _, e := range effects[placeOf(r)] {
			e.replayed = true
			b.effects[at] = append(b.effects[at], e)
		}
		delete(effects, placeOf(r))
	}
	for at := range effects {
		b.complain("an effect of replay %s, which is none of this route's", at)
	}
}

// count gives every record its outcome and complains where that cannot be done.
func (b *books) count() tally {
	sum := tally{Records: len(b.records)}
	known := map[place]bool{}
	for _, r := range b.records {
		known[placeOf(r)] = true
		switch n := len(b.effects[placeOf(r)]); {
		case b.parked[placeOf(r)] && (n > 0 || len(b.letters[placeOf(r)]) > 0):
			b.complain("%s is parked, with %d effects and %d letters", placeOf(r), n, len(b.letters[placeOf(r)]))
		case n > 1:
			b.complain("%s has %d effects", placeOf(r), n)
		case n == 1:
			sum.Effected += b.effected(r)
		case len(b.letters[placeOf(r)]) > 0:
			sum.Dead += b.dead(r)
		default:
			b.silent(r, &sum)
		}
	}
	b.strangers(known)
	b.onceEach()
	b.inOrder()
	b.sums(sum)
	return sum
}

// effected checks a record whose handler wrote.
func (b *books) effected(r *kgo.Record) int {
	hash, _ := b.coordinates(r)
	row, ok := b.rows[b.id(r)]
	replayed := b.effects[placeOf(r)][0].replayed
	switch {
	case b.byOffset && !replayed:
		if ok || len(b.letters[placeOf(r)]) > 0 {
			b.complain("%s has an effect, and an inbox row: %v, and %d dead letters", placeOf(r), ok, len(b.letters[placeOf(r)]))
		}
	case !ok:
		b.complain("%s has an effect and no inbox row", placeOf(r))
	case row.State != effectedRow || !row.is(hash):
		b.complain("%s has an effect, and its inbox row is of state %d, its own: %v", placeOf(r), row.State, row.is(hash))
	case (row.Original != nil) != replayed:
		b.complain("%s has an effect, by a replay: %v, and its inbox row says otherwise", placeOf(r), replayed)
	case replayed:
		return 1 // its letters stay
	case len(b.letters[placeOf(r)]) > 0:
		b.complain("%s has an effect and a dead letter", placeOf(r))
	}
	return 1
}

// dead checks a record of which there are letters: byte for byte, and with the verdict in the inbox.
func (b *books) dead(r *kgo.Record) int {
	hash, byPlace := b.coordinates(r)
	for _, l := range b.letters[placeOf(r)] {
		if what := l.differs(r); what != "" {
			b.complain("the dead letter of %s has another %s", placeOf(r), what)
		}
	}
	for _, key := range []uuid.UUID{b.id(r), byPlace} {
		if row, ok := b.rows[key]; ok && row.is(hash) && row.State == deadRow {
			return 1
		}
	}
	b.complain("%s has a dead letter and no dead row of its own", placeOf(r))
	return 1
}

// silent finds the outcome of a record that left neither an effect nor a letter.
func (b *books) silent(r *kgo.Record, sum *tally) {
	hash, _ := b.coordinates(r)
	row, ok := b.rows[b.id(r)]
	switch {
	case b.byOffset && !ok && skips(r):
		sum.Skipped++ // nothing else shows it
	case !ok && b.parked[placeOf(r)]:
		sum.Parked++
	case !ok:
		b.complain("%s is LOST: no effect, no letter, no row", placeOf(r))
	case !row.is(hash):
		first := b.byHash[row.Coordinates]
		if first != nil && !bytes.Equal(first.Value, r.Value) {
			b.complain("%s was taken for a duplicate of %s and has another value", placeOf(r), placeOf(first))
		}
		sum.Duplicate++
	case row.State == skippedRow:
		sum.Skipped++
	case row.State == deadRow:
		b.complain("%s is LOST: dead in the inbox, and no letter", placeOf(r))
	default:
		b.complain("%s is LOST: effected in the inbox, and no effect", placeOf(r))
	}
}

func skips(r *kgo.Record) bool { return bytes.Contains(r.Value, []byte(`"do":"skip"`)) }

// strangers finds effects and letters of what is not in the topic: an aborted record for one.
func (b *books) strangers(known map[place]bool) {
	for p := range b.effects {
		if !known[p] {
			b.complain("an effect of %s, which is no record", p)
		}
	}
	for p := range b.letters {
		if !known[p] {
			b.complain("a dead letter of %s, which is no record", p)
		}
	}
}

// onceEach finds ids with two effects, and letters whose records are written more than twice: a lost acknowledgement
// makes a second copy, nothing makes more of them here.
func (b *books) onceEach() {
	first := map[string]place{}
	for p, effects := range b.effects {
		for _, e := range effects {
			if other, twice := first[e.id]; twice && e.id != "" {
				b.complain("id %s has effects at %s and %s", e.id, other, p)
			}
			first[e.id] = p
		}
	}
}

// inOrder compares the order of a key's effects with that of its records.
func (b *books) inOrder() {
	last := map[string]int64{}
	for _, r := range b.records { // by partition and offset
		if r.Key == nil {
			continue // it depends on no other; its effect's key reads like that of a record with an empty one
		}
		for _, e := range b.effects[placeOf(r)] {
			if e.replayed {
				continue // the others of its key have not waited for it
			}
			line := strconv.Itoa(int(r.Partition)) + "/" + e.key
			if e.seq <= last[line] {
				b.complain("key %s: the effect of %s came before that of an earlier record", e.key, placeOf(r))
			}
			last[line] = max(last[line], e.seq)
		}
	}
}

func (b *books) sums(sum tally) {
	if got := sum.Effected + sum.Duplicate + sum.Skipped + sum.Dead + sum.Parked; got != sum.Records {
		b.complain("%d records and %d outcomes", sum.Records, got)
	}
	rows := sum.Effected + sum.Skipped + sum.Dead
	if b.byOffset {
		rows = sum.Dead + b.risen()
	}
	if rows != len(b.rows) {
		b.complain("%d inbox rows and %d records that should have one", len(b.rows), rows)
	}
}

// risen is how many of the effects are of replays.
func (b *books) risen() (n int) {
	for _, effects := range b.effects {
		for _, e := range effects {
			if e.replayed {
				n++
			}
		}
	}
	return n
}

// id is by what the inbox knows the record: what the producer wrote, or its coordinates, which are all that counts with
// the offset store.
func (b *books) id(r *kgo.Record) uuid.UUID {
	if b.byOffset {
		_, key := b.coordinates(r)
		return key
	}
	for _, name := range []string{idHeader, uuidHeader} {
		if text := header(r, name); text != "" {
			return keyOf(text)
		}
	}
	_, key := b.coordinates(r)
	return key
}

func header(r *kgo.Record, name string) string {
	i := slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == name })
	if i < 0 {
		return ""
	}
	return string(r.Headers[i].Value)
}

func keyOf(id string) uuid.UUID {
	if u, err := uuid.Parse(id); err == nil && len(id) == 36 {
		return u
	}
	sum := sha256.Sum256([]byte(id))
	return version8(sum[:16])
}

func version8(b []byte) uuid.UUID {
	u := uuid.UUID(b)
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return u
}

func (b *books) coordinates(r *kgo.Record) (int64, uuid.UUID) { return coordinates(b.topicID, r) }

// coordinates are the record's place as the inbox stores it, and the id that a record without one gets from it.
func coordinates(topicID uuid.UUID, r *kgo.Record) (int64, uuid.UUID) {
	text := append([]byte("headrace coordinates"), topicID[:]...)
	text = binary.BigEndian.AppendUint32(text, uint32(r.Partition))
	text = binary.BigEndian.AppendUint64(text, uint64(r.Offset))
	sum := sha256.Sum256(text)
	return int64(binary.BigEndian.Uint64(sum[:8])), idAt(topicID, r)
}

// idAt is 60 bits of the partition and 62 of the offset.
func idAt(topicID uuid.UUID, r *kgo.Record) uuid.UUID {
	stream := binary.BigEndian.Uint64(topicID[:8]) ^ binary.BigEndian.Uint64(topicID[8:])
	stream += uint64(r.Partition) * 0x9E3779B97F4A7C15
	return version8(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, stream), uint64(r.Offset)))
}

// effects are what the handlers of a route have written, by the record that they wrote for.
func (w *world) effects(route string) map[place][]effect {
	w.t.Helper()
	return w.effectsIn(w.topic, route)
}

func (w *world) effectsIn(topic, route string) map[place][]effect {
	w.t.Helper()
	rows, err := w.pool.Query(w.t.Context(),
		`select part, off, id, key, seq from effects where route = $1 and topic = $2`, route, topic)
	require.NoError(w.t, err)
	found := map[place][]effect{}
	var p place
	var e effect
	_, err = pgx.ForEachRow(rows, []any{&p.partition, &p.offset, &e.id, &e.key, &e.seq}, func() error {
		found[p] = append(found[p], e)
		return nil
	})
	require.NoError(w.t, err)
	return found
}

// inbox is what the inbox knows of a route.
func (w *world) inbox(route string) map[uuid.UUID]inboxRow {
	w.t.Helper()
	rows, err := w.pool.Query(w.t.Context(), `select i.message_id, i.state, i.coordinates, i.original, i.reason from headrace.inbox i
		join headrace.consumers c on c.id = i.consumer_id where c.consumer_group = $1 and c.route = $2`, w.group, route)
	require.NoError(w.t, err)
	found := map[uuid.UUID]inboxRow{}
	var id uuid.UUID
	var row inboxRow
	_, err = pgx.ForEachRow(rows, []any{&id, &row.State, &row.Coordinates, &row.Original, &row.Reason}, func() error {
		found[id] = row
		return nil
	})
	require.NoError(w.t, err)
	return found
}

// auditOffsets requires that the group has committed everything: to the partition's end, but for a transaction's
// markers, which are no records and which the client does not show.
func (w *world) auditOffsets(topic string, records []*kgo.Record) {
	w.t.Helper()
	committed, ends := w.committedOf(topic), w.ends(topic)
	next := map[int32]int64{}
	for _, r := range records {
		next[r.Partition] = r.Offset + 1
	}
	for partition, offset := range next {
		require.GreaterOrEqual(w.t, committed[partition], offset, "partition %d of %s is not committed to its end", partition, topic)
		require.LessOrEqual(w.t, committed[partition], ends[partition], "partition %d of %s is committed beyond its end", partition, topic)
	}
}

package schedule

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What the inbox's rows say, written down a second time: the audit must not believe the engine about it.
const (
	effectedRow = 0
	skippedRow  = 1
	deadRow     = 2
)

// now is everything that is durable at a moment.
type now struct {
	byOffset bool
	topicID  [16]byte
	effects  map[place][]int64 // by the record: when, as numbers that grow
	rows     map[uuid.UUID]row
	letters  map[place][]letter
}

type row struct {
	state       int16
	coordinates int64
}

func (r row) is(coordinates int64) bool { return r.coordinates == coordinates }

// look reads the tables and the dead letter topic.
func (r *run) look(ctx context.Context) *now {
	n := &now{byOffset: r.Store == byOffset, topicID: r.topicID, effects: map[place][]int64{}, rows: map[uuid.UUID]row{}}
	n.letters = r.readLetters(ctx)
	rows, err := r.pool.Query(ctx, `select part, off, seq from effects where run = $1 order by seq`, r.group)
	require.NoError(r.t, err)
	var p place
	var seq int64
	_, err = pgx.ForEachRow(rows, []any{&p.partition, &p.offset, &seq}, func() error {
		n.effects[p] = append(n.effects[p], seq)
		return nil
	})
	require.NoError(r.t, err)
	rows, err = r.pool.Query(ctx, `select i.message_id, i.state, i.coordinates from headrace.inbox i
		join headrace.consumers c on c.id = i.consumer_id where c.consumer_group = $1`, r.group)
	require.NoError(r.t, err)
	var id uuid.UUID
	var in row
	_, err = pgx.ForEachRow(rows, []any{&id, &in.state, &in.coordinates}, func() error {
		n.rows[id] = in
		return nil
	})
	require.NoError(r.t, err)
	return n
}

// coordinates are the place as the inbox stores it.
func (n *now) coordinates(s *sent) int64 {
	text := append([]byte("headrace coordinates"), n.topicID[:]...)
	text = binary.BigEndian.AppendUint32(text, uint32(s.at.partition))
	text = binary.BigEndian.AppendUint64(text, uint64(s.at.offset))
	sum := sha256.Sum256(text)
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// place is the id of a record that has none of its own: 60 bits of the partition and 62 of the offset.
func (n *now) place(s *sent) uuid.UUID {
	stream := binary.BigEndian.Uint64(n.topicID[:8]) ^ binary.BigEndian.Uint64(n.topicID[8:])
	stream += uint64(s.at.partition) * 0x9E3779B97F4A7C15
	u := uuid.UUID(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, stream), uint64(s.at.offset)))
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return u
}

// letter is a dead letter.
type letter struct {
	raw    *kgo.Record
	ours   int // how many of its headers are
	fields map[string]string
}

// readLetters gives the dead letters by the place of the record that died.
func (r *run) readLetters(ctx context.Context) map[place][]letter {
	found := map[place][]letter{}
	for _, raw := range r.read(ctx, r.topic+".dlq") {
		l := letter{raw: raw, fields: map[string]string{}}
		for _, h := range raw.Headers {
			l.fields[h.Key] = string(h.Value)
		}
		l.ours, _ = strconv.Atoi(l.fields["headrace-dlq"])
		partition, _ := strconv.Atoi(l.fields["headrace-partition"])
		offset, err := strconv.ParseInt(l.fields["headrace-offset"], 10, 64)
		if err != nil || l.ours == 0 {
			r.complain("letter: one that is none: %v", raw.Headers)
			continue
		}
		at := place{int32(partition), offset}
		found[at] = append(found[at], l)
	}
	return found
}

// read gives all records of a topic; none if it does not exist.
func (r *run) read(ctx context.Context, topic string) (rs []*kgo.Record) {
	ends, err := r.admin.ListEndOffsets(ctx, topic)
	require.NoError(r.t, err)
	left, from := map[int32]int64{}, map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err == nil && o.Offset > 0 {
			left[o.Partition], from[o.Partition] = o.Offset, kgo.NewOffset().AtStart()
		}
	})
	if len(left) == 0 {
		return nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	require.NoError(r.t, err)
	defer client.Close()
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		require.NoError(r.t, ctx.Err())
		fetches.EachRecord(func(raw *kgo.Record) {
			rs = append(rs, raw)
			if raw.Offset >= left[raw.Partition]-1 {
				delete(left, raw.Partition)
			}
		})
	}
	return rs
}

// differs says what of the letter is not the record's, "" for nothing.
func (l letter) differs(s *sent) string {
	n := len(l.raw.Headers) - 1 - l.ours
	switch {
	case !identical(l.raw.Key, s.raw.Key):
		return "key"
	case !identical(l.raw.Value, s.raw.Value):
		return "value"
	case n < 0 || !slices.EqualFunc(l.raw.Headers[:n], s.raw.Headers, func(a, b kgo.RecordHeader) bool {
		return a.Key == b.Key && identical(a.Value, b.Value)
	}):
		return "headers"
	}
	return ""
}

// identical tells nil from empty.
func identical(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

// audit finds what does not add up.
func (r *run) audit(ctx context.Context) {
	a := &audit{run: r, now: r.look(ctx), ends: map[place]string{}}
	if a.byOffset {
		a.byItself()
	} else {
		for _, same := range a.families() {
			a.family(same)
		}
	}
	a.strangers()
	a.order()
	if !r.drained(ctx) {
		r.complain("offsets: not everything is committed")
	}
	if want := a.expectedRows; len(a.rows) != want {
		r.complain("rows: %d in the inbox, and %d records that should have one", len(a.rows), want)
	}
	if len(a.ends) != len(r.visible()) {
		r.complain("ledger: %d records and %d outcomes", len(r.visible()), len(a.ends))
	}
	r.outcomes = map[string]int{}
	for _, what := range a.ends {
		r.outcomes[what]++
	}
}

type audit struct {
	*run
	*now

	ends         map[place]string // the outcomes that are found, and right
	expectedRows int
}

// byItself judges each record for itself, whatever its id is.
func (a *audit) byItself() {
	for _, s := range a.all() {
		switch f := fateOf(s.Do); f.end {
		case effects:
			a.isEffected(s, row{state: effectedRow})
		case skips:
			a.nothing(s, "skipped")
		case dies:
			a.expectedRows++
			a.isDead(s, f.reasons, a.place(s))
		}
	}
}

// families are the records by their ids. Those without one are each alone.
func (a *audit) families() [][]*sent {
	byID := map[string][]*sent{}
	for _, s := range a.all() {
		id := s.id()
		if id == "" {
			id = s.at.String()
		}
		byID[id] = append(byID[id], s)
	}
	return slices.Collect(maps.Values(byID))
}

// family judges the records of one id: one of its variants counts, the others are conflicts.
func (a *audit) family(all []*sent) {
	variants := map[string][]*sent{}
	for _, s := range all {
		variants[string(s.raw.Value)] = append(variants[string(s.raw.Value)], s)
	}
	winner := ""
	for value, same := range variants {
		if a.isWinner(same) {
			if winner != "" {
				a.complain("id: %s has two winners: %s and %s", all[0].id(), winner, value)
			}
			winner = value
		}
	}
	if winner == "" {
		a.complain("lost: none of the records of %s has had an outcome of its own: %s (%s)", all[0].id(), all[0].at, all[0].Do)
		return
	}
	a.expectedRows++
	a.variant(variants[winner])
	delete(variants, winner)
	for _, same := range variants {
		for _, s := range same {
			a.expectedRows++
			// One that fails before the inbox has seen it says what of.
			a.isDead(s, append([]string{"id_conflict"}, fateOf(s.Do).reasons...), a.place(s))
		}
	}
}

// isWinner asks the inbox's row: whose it is.
func (a *audit) isWinner(same []*sent) bool {
	row, ok := a.rows[a.keyOf(same[0])]
	return ok && slices.ContainsFunc(same, func(s *sent) bool { return row.is(a.coordinates(s)) })
}

// variant judges records of one id and the same bytes: one has the outcome, the others are its duplicates.
func (a *audit) variant(same []*sent) {
	key := a.keyOf(same[0])
	row := a.rows[key]
	for _, s := range same {
		if !row.is(a.coordinates(s)) {
			a.nothing(s, "duplicate")
			continue
		}
		f := fateOf(s.Do)
		switch f.end {
		case effects:
			a.isEffected(s, row)
		case skips:
			if row.state != skippedRow {
				a.complain("skipped: %s (%s) has a row of state %d", s.at, s.Do, row.state)
			}
			a.nothing(s, "skipped")
		case dies:
			a.isDead(s, f.reasons, key)
		}
	}
}

func (a *audit) nothing(s *sent, what string) {
	if n := len(a.effects[s.at]); n > 0 {
		a.complain("%s: %s (%s) has %d effects", what, s.at, s.Do, n)
		return
	}
	if n := len(a.letters[s.at]); n > 0 {
		a.complain("%s: %s (%s) has %d letters: %v", what, s.at, s.Do, n, a.letters[s.at][0].fields)
		return
	}
	a.ends[s.at] = what
}

func (a *audit) isEffected(s *sent, row row) {
	switch {
	case len(a.letters[s.at]) > 0:
		a.complain("healthy: %s (%s %d) is dead: %v", s.at, s.Do, s.K, a.letters[s.at][0].fields)
	case len(a.effects[s.at]) != 1:
		a.complain("effected: %s (%s) has %d effects", s.at, s.Do, len(a.effects[s.at]))
	case row.state != effectedRow:
		a.complain("effected: %s (%s) has a row of state %d", s.at, s.Do, row.state)
	default:
		a.ends[s.at] = "effected"
	}
}

func (a *audit) isDead(s *sent, reasons []string, key uuid.UUID) {
	row, ok := a.rows[key]
	letters := a.letters[s.at]
	switch {
	case len(letters) == 0:
		a.complain("dead: %s (%s) has no letter", s.at, s.Do)
		return
	case len(a.effects[s.at]) > 0:
		a.complain("dead: %s (%s) has an effect", s.at, s.Do)
		return
	case !ok || row.state != deadRow || !row.is(a.coordinates(s)):
		a.complain("dead: %s (%s) has no dead row of its own: %v, state %d", s.at, s.Do, ok, row.state)
		return
	case len(letters) > 1 && len(a.Lives) == 0:
		a.complain("dead: %s (%s) has %d letters, and nothing was lost", s.at, s.Do, len(letters))
	}
	for _, l := range letters {
		if what := l.differs(s); what != "" {
			a.complain("letter: of %s (%s) has another %s", s.at, s.Do, what)
		}
		if !slices.Contains(reasons, l.fields["headrace-reason"]) {
			a.complain("letter: of %s (%s) says %q", s.at, s.Do, l.fields["headrace-reason"])
		}
	}
	a.ends[s.at] = "dead"
}

// strangers finds effects and letters of what is not in the topic: an aborted record for one.
func (a *audit) strangers() {
	known := map[place]bool{}
	for _, s := range a.all() {
		known[s.at] = true
	}
	for p := range a.effects {
		if !known[p] {
			a.complain("stranger: an effect of %s, which is no record", p)
		}
	}
	for p := range a.letters {
		if !known[p] {
			a.complain("stranger: a letter of %s, which is no record", p)
		}
	}
}

// order compares the order of the effects of each line with that of its records.
func (a *audit) order() {
	last := map[string]*sent{}
	all := a.all()
	slices.SortStableFunc(all, func(x, y *sent) int { return cmp.Compare(x.at.offset, y.at.offset) })
	for _, s := range all {
		line, ok := a.line(s)
		if !ok || len(a.effects[s.at]) == 0 {
			continue
		}
		if before := last[line]; before != nil && a.effects[before.at][0] > a.effects[s.at][0] {
			a.complain("order: %s had its effect before %s", s.at, before.at)
		}
		last[line] = s
	}
}

// line is what the record's effect must be in order with.
func (a *audit) line(s *sent) (string, bool) {
	p := strconv.Itoa(int(s.at.partition))
	switch {
	case a.Order == byPartition:
		return p, true
	case a.Order == byKey && s.raw.Key != nil:
		return p + "/" + string(s.raw.Key), true
	}
	return "", false
}

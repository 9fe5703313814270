package dedup

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
)

// As a rule all records of a group are new. Then COPY writes their rows for half of what the insert that skips known ones
// costs the server: it looks once into the index and not twice, writes one log record a page, and reads no text. Where one
// row is known, the server refuses them all. Then the group begins again, and the next ones begin so, because duplicates
// come in runs: the opening trip asks for all of them, and COPY writes the rows of those that are not there. What another
// transaction writes in between has the server refuse them too, and then the insert's word counts.
const (
	// copyAtLeast is how many records are worth COPY's own trip.
	copyAtLeast = 64
	// careful is how many groups ask first after one that met a known row.
	careful = 64
)

// way is how a group writes its rows, each more careful than the one before.
type way uint8

const (
	copied way = iota
	asked      // and those copied that nobody knows
	inserted
)

// copySQL is not run as a prepared statement, which COPY cannot be.
const copySQL = `copy headrace.inbox (consumer_id, message_id, value_hash, coordinates) from stdin (format binary)`

// errKnown: the server has refused the rows, most likely because one of them is known.
var errKnown = errors.New("rows were not copied")

// caution is how a route's groups write their rows: those of so many records at least are copied, and so many more ask first.
type caution struct {
	least  int
	groups atomic.Int32
}

func (c *caution) raise() { c.groups.Store(careful) }

// pass counts a group.
func (c *caution) pass() {
	if n := c.groups.Load(); n > 0 {
		c.groups.CompareAndSwap(n, n-1)
	}
}

// wayIn chooses how the rows are written, unless a way has just failed.
func (g *group) wayIn() way {
	switch {
	case g.rt.offsets != nil, len(g.w.order) < g.rt.caution.least:
		return inserted
	case g.rt.caution.groups.Load() > 0:
		return max(g.way, asked)
	}
	return g.way
}

// copyRows writes the rows of those that are fresh, and then executes the statements in after, in one trip. Whatever the
// server has against it, the next way in is told too, and the insert's answer counts.
func (g *group) copyRows(ctx context.Context, by way, after string) error {
	w := g.w
	w.copy = appendCopy(w.copy[:0], g.rt, w.order)
	_, err := g.conn.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(w.copy), copySQL+"; "+after)
	switch {
	case err == nil:
		return nil
	case isServerError(err):
		g.rt.caution.raise()
		if g.way = by + 1; !isCode(err, codeUnique) {
			g.way = inserted // somebody has one of them in hand: only the insert says so
		}
		return errors.Join(errKnown, err)
	}
	w.copy = nil // with a connection that broke, pgx may still be reading it
	return err
}

// appendCopy appends the rows of those that are fresh in COPY's binary format: a header, for each row the number of its
// columns and then each one's length and bytes, and -1 as a number of columns at the end.
func appendCopy(b []byte, rt *Route, es []*entry) []byte {
	b = append(b, "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	number := binary.BigEndian
	for _, e := range es {
		if e.answer != Fresh {
			continue
		}
		key, hash, coords := rt.row(e.r)
		b = number.AppendUint16(b, 4)
		b = number.AppendUint32(b, 4)
		b = number.AppendUint32(b, uint32(rt.consumer))
		b = append(number.AppendUint32(b, uint32(len(key))), key[:]...)
		b = number.AppendUint64(number.AppendUint32(b, 8), uint64(hash))
		b = number.AppendUint64(number.AppendUint32(b, 8), uint64(coords))
	}
	return number.AppendUint16(b, 0xffff)
}

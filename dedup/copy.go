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
// row is known, the server refuses them all; then the group begins again with that insert, and so do the next groups:
// duplicates come in runs, behind a restart most of all.
const (
	// copyAtLeast is how many records are worth COPY's own trip.
	copyAtLeast = 64
	// careful is how many groups do not try it after one that met a known row.
	careful = 64
)

// copySQL is not run as a prepared statement, which COPY cannot be.
const copySQL = `copy headrace.inbox (consumer_id, message_id, value_hash, coordinates) from stdin (format binary)`

// errKnown: the server has refused the rows, most likely because one of them is known.
var errKnown = errors.New("rows were not copied")

// caution is when a route copies: groups of so many records at least, after so many more that use the insert.
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

// copies says whether the group's rows are to be copied.
func (g *group) copies() bool {
	return g.rt.offsets == nil && !g.refusedCopy && len(g.entries) >= g.rt.caution.least && g.rt.caution.groups.Load() == 0
}

// copyRows writes the rows of w.order and then executes the statements in after, in one trip. Whatever the server has
// against it, the insert that comes next is told too, and its answer counts.
func (g *group) copyRows(ctx context.Context, after string) error {
	w := g.w
	w.copy = appendCopy(w.copy[:0], g.rt, w.order)
	_, err := g.conn.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(w.copy), copySQL+"; "+after)
	switch {
	case err == nil:
		return nil
	case isServerError(err):
		g.refusedCopy = true
		g.rt.caution.raise()
		return errors.Join(errKnown, err)
	}
	w.copy = nil // with a connection that broke, pgx may still be reading it
	return err
}

// appendCopy appends rows in COPY's binary format: a header, for each row the number of its columns and then each one's
// length and bytes, and -1 as a number of columns at the end.
func appendCopy(b []byte, rt *Route, es []*entry) []byte {
	b = append(b, "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	number := binary.BigEndian
	for _, e := range es {
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

package dedup

import (
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/headrace/headrace/fault"
)

// queuedStatement is one statement that is ready to be sent, as often as need be.
type queuedStatement struct {
	*text
	values [][]byte
	types  []int16
	fn     func(pgx.BatchResults) error // for its result, nil: nobody wants it
}

// pipeline is the memory of what a writer's group has queued: statements with their arguments encoded.
type pipeline struct {
	build      pgx.ExtendedQueryBuilder
	statements []queuedStatement
	values     [][]byte
	bytes      []byte
}

func (p *pipeline) reset() {
	clear(p.statements)
	clear(p.values)
	p.statements, p.values, p.bytes = p.statements[:0], p.values[:0], p.bytes[:0]
}

// cut takes back what was added since there were n statements. Their bytes stay until the group's end.
func (p *pipeline) cut(n int) {
	clear(p.statements[n:])
	p.statements = p.statements[:n]
}

// add encodes the arguments of q for x. An encoder may be the user's: its panic is an error.
func (p *pipeline) add(types *pgtype.Map, x *text, q *pgx.QueuedQuery) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fault.Recovered(r)
		}
	}()
	if x.err != nil {
		return x.err
	}
	if err := p.build.Build(types, x.sd, q.Arguments); err != nil {
		return fmt.Errorf("queued statement: %w", err)
	}
	s := queuedStatement{text: x, values: p.keep(p.build.ParamValues), fn: q.Fn}
	if !slices.Equal(x.formats, p.build.ParamFormats) {
		x.formats = slices.Clone(p.build.ParamFormats)
	}
	s.types = x.formats
	p.statements = append(p.statements, s)
	return nil
}

// keep copies values into the group's memory: what was there before stays where it is.
func (p *pipeline) keep(values [][]byte) [][]byte {
	if p.bytes == nil {
		p.bytes = make([]byte, 0, 4096) // never nil: a value of no bytes is not NULL
	}
	from := len(p.values)
	for _, v := range values {
		if v == nil { // NULL
			p.values = append(p.values, nil)
			continue
		}
		at := len(p.bytes)
		p.bytes = append(p.bytes, v...)
		p.values = append(p.values, p.bytes[at:len(p.bytes):len(p.bytes)])
	}
	return p.values[from:len(p.values):len(p.values)]
}

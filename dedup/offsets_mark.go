package dedup

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/record"
)

// marking is what comes right before COMMIT: the marks of the transaction's partitions, whose turns it has until end.
type marking struct {
	s     *offsetStore
	marks []mark
	args  markArgs
	// written: the server has taken the marks, so that what it refuses is in the records' transaction and not in them.
	written bool
}

// begin takes the turns of the leases' partitions, in one order, and makes the marks. Who calls it has the connection that
// they are for. It is nil if ctx is over, or one of the leases: another claim has acquired the partition, so the
// transaction must be rolled back.
func (s *offsetStore) begin(ctx context.Context, ls []lease, done, dead func(*image) []*record.Record) *marking {
	slices.SortFunc(ls, func(a, b lease) int { return byPartition(a.img.at, b.img.at) })
	m := &marking{s: s, marks: make([]mark, 0, len(ls))}
	for _, l := range ls {
		if l.img.takeTurn(ctx) != nil {
			m.release()
			return nil
		}
		x, ok := l.img.newMark(l, done(l.img), dead(l.img))
		if !ok {
			l.img.endTurn()
			m.release()
			return nil
		}
		m.marks = append(m.marks, x)
		m.args.add(&x)
	}
	return m
}

func nobody(*image) []*record.Record { return nil }

// queue puts the marks' statement into b: COMMIT comes right after it, in the same trip.
func (m *marking) queue(b *pgx.Batch) {
	b.Queue(markOffsetsSQL, m.args.values(m.s.rt.consumer)...).Query(func(rows pgx.Rows) error {
		rows.Close()
		m.written = rows.Err() == nil
		return rows.Err()
	})
}

// end gives the turns back, after the answer to COMMIT.
func (m *marking) end(how ending) {
	defer m.release()
	switch how {
	case committed:
		for i := range m.marks {
			m.marks[i].stand()
		}
	case fenced, unknown:
		m.s.lose(m.marks, how == fenced)
	case rolledBack, conflicted, notSent, released, refusedMark:
	}
}

func (m *marking) release() {
	for i := range m.marks {
		m.marks[i].img.endTurn()
	}
}

// write makes the marks in a transaction of their own.
func (m *marking) write(ctx context.Context, conn *pgx.Conn) error {
	tag, err := conn.Exec(ctx, markOffsetsSQL, m.args.values(m.s.rt.consumer)...)
	how := committed
	if err != nil {
		how = judgeCommit(tag.String(), err)
	}
	m.end(how)
	if how == fenced {
		return errFenced
	}
	return err
}

var errFenced = errors.New("another claim has acquired the partition")

package dedup

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/record"
)

// leased acquires the partitions of those that are to be buried in an offset store, and settles those for which there is
// nothing to bury, or whose claim is over.
func (y *graveyard) leased(batch []*burial) []*burial {
	if y.rt.offsets == nil {
		return batch
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	return slices.DeleteFunc(batch, func(b *burial) bool {
		l, err := y.rt.offsets.lease(ctx, b.r)
		if err != nil {
			b.settle(unseen, err)
			return true
		}
		b.lease = l
		a, _, err := y.rt.offsets.answer(l.img, b.r)
		switch {
		case err != nil:
			b.settle(unseen, err)
		case a == Own:
			b.settle(Own, nil)
		}
		return err != nil || a == Own
	})
}

// commitMarked commits dead rows together with the graves in their partitions' rows: a record that is dead has both, and
// who acquires the partition next knows it.
func (y *graveyard) commitMarked(conn *pgx.Conn, batch []*burial, answers []Answer) error {
	var ls []lease
	for _, b := range batch {
		if !slices.Contains(ls, b.lease) {
			ls = append(ls, b.lease)
		}
	}
	m := y.rt.offsets.begin(context.Background(), ls, nobody, func(x *image) (dead []*record.Record) {
		for i, b := range batch {
			if b.lease.img == x && isGrave(answers[i]) {
				dead = append(dead, b.r)
			}
		}
		return dead
	})
	if m == nil {
		return errFenced
	}
	tag, err := m.commit(conn)
	how := judgeCommit(tag, err)
	m.end(how)
	if how != committed {
		return or(err, errNotCommitted)
	}
	for i, b := range batch {
		if isGrave(answers[i]) || answers[i].Outcome() != record.Unsettled {
			y.rt.offsets.leave(b.lease.img, b.r)
		}
	}
	return nil
}

// isGrave says whether a record with this answer is dead.
func isGrave(a Answer) bool { return a == Fresh || a == DeadReplay || a.Outcome() == record.Dead }

var errNotCommitted = errors.New("COMMIT was answered with ROLLBACK")

// commit sends the marks and COMMIT in one trip.
func (m *marking) commit(conn *pgx.Conn) (tag string, err error) {
	b := &pgx.Batch{}
	m.queue(b)
	b.Queue(commitTexts[1])
	b.Queue(commitTexts[2]).Exec(func(t pgconn.CommandTag) error {
		tag = t.String()
		return nil
	})
	err = conn.SendBatch(context.Background(), b).Close()
	return tag, err
}

// keepInterval is how long a record that is settled without a mark waits for one, at most: a crash in between has its
// dead letter written again.
const keepInterval = time.Second

// leave notes that r is settled, or will be, without a mark of its own: its letter comes first. The next mark of its
// partition takes it along, and where there is none for a while, the keeper writes one.
func (s *offsetStore) leave(x *image, r *record.Record) {
	x.leave(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.keeping && s.rt.in.joined() {
		s.keeping = true
		go s.keep()
	}
}

// keep lives while there are such records.
func (s *offsetStore) keep() {
	defer s.rt.in.left()
	for backoff.Wait(s.rt.in.ctx, keepInterval) {
		for _, x := range s.all() {
			s.flush(s.rt.in.ctx, x)
		}
		if s.kept() {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keeping = false
}

func (s *offsetStore) all() []*image {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*image, 0, len(s.images))
	for _, x := range s.images {
		all = append(all, x)
	}
	return all
}

// kept says whether nobody waits any more.
func (s *offsetStore) kept() bool {
	all := s.all()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range all {
		if x.waits() > 0 {
			return false
		}
	}
	s.keeping = false
	return true
}

// waits is how many of a living claim are not marked. Those of one that is over are redelivered if they are not settled,
// and below its committed offset if they are.
func (x *image) waits() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.epoch == 0 || over(x.claim) {
		return 0
	}
	return len(x.outside)
}

// flush marks what is settled without a mark. An error is the next flush's, or mark's: nothing depends on it but that a
// letter is not written twice.
func (s *offsetStore) flush(ctx context.Context, x *image) {
	l, ok := x.settledOutside()
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	if err := s.mark(ctx, []lease{l}, nobody); err != nil {
		s.rt.in.cfg.Logger.DebugContext(ctx, "settled records are not marked yet", "route", s.rt.cfg.Name, "error", err)
	}
}

// mark makes the marks in a transaction of their own.
func (s *offsetStore) mark(ctx context.Context, ls []lease, done func(*image) []*record.Record) error {
	conn, err := s.rt.in.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	m := s.begin(ctx, ls, done, nobody)
	if m == nil {
		return or(context.Cause(ctx), errFenced)
	}
	return m.write(ctx, conn.Conn())
}

func (x *image) settledOutside() (lease, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return lease{x, x.epoch}, x.epoch != 0 && slices.ContainsFunc(x.outside, (*record.Record).Settled)
}

// lookAtOffsets is Look by the images. Only of what is dead, or was looked at before, the inbox is asked: an operator may
// have buried it.
func (rt *Route) lookAtOffsets(ctx context.Context, rs []*record.Record) ([]Answer, error) {
	answers := make([]Answer, len(rs))
	imgs := make([]*image, len(rs))
	var ask []*record.Record
	var at []int
	for i, r := range rs {
		l, err := rt.offsets.lease(ctx, r)
		if err != nil {
			return nil, err
		}
		a, unsure, err := rt.offsets.answer(l.img, r)
		if err != nil {
			return nil, err
		}
		answers[i], imgs[i] = a, l.img
		if a == Fresh && l.img.remember(r, looked) || unsure {
			ask, at = append(ask, r), append(at, i)
		}
	}
	if len(ask) == 0 {
		return answers, nil
	}
	said, err := rt.lookAtRows(ctx, ask)
	if err != nil {
		return nil, err
	}
	for i, a := range said {
		if a != Fresh {
			answers[at[i]] = a
			imgs[at[i]].remember(ask[i], tried) // so that Run asks too
		}
	}
	return answers, nil
}

package dedup

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/record"
)

// offsetStore is the offset store of one route: an image for each partition that this process has acquired.
//
//	claim's first group ─► acquire: epoch + 1 ─► image: low, done, graves
//	group ─► the image answers ─► handlers ─► turn ─► mark where epoch is mine; COMMIT ─► committed: image = mark
//	                                                                                  ├► fenced: nothing stands, acquire again
//	                                                                                  └► unknown: image lost, acquire again
//
// Invariants:
//
//   - A record is done in the row if and only if its effects are durable: they are one transaction.
//   - Only the claim that acquired a partition last writes its row; a zombie's groups are rolled back whole.
//   - The image is the row, or is lost: who finds it lost acquires the partition again before it answers anything.
//   - A claim that is ending acquires nothing: it would fence off the one that comes after it.
//   - A connection comes before a turn: who waits for one has no turn, or those who have all of them would wait for that turn.
type offsetStore struct {
	rt *Route

	mu      sync.Mutex
	images  map[partition]*image
	keeping bool // somebody writes what is settled without a mark
}

var (
	errClaimOver = errors.New("its claim is ending, and another one has acquired its partition or will")
	errNoTopicID = errors.New("the record's topic id is unknown: the offset store would take a topic that is made anew for the old one")
)

func (s *offsetStore) image(at partition) *image {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.images[at]
	if x == nil {
		if s.images == nil {
			s.images = map[partition]*image{}
		}
		x = &image{at: at, turn: make(chan struct{}, 1)}
		s.images[at] = x
	}
	return x
}

// begins notes the offset of a claim's first record. The next subscription in a claim tells of a first record too, although
// the one before may have left some that come earlier and are not done: so it counts for a claim that is new alone. Where
// it cannot be told whether that is so, because the last one acquired nothing, the earlier offset is the safe one.
func (s *offsetStore) begins(at partition, offset int64) {
	x := s.image(at)
	x.mu.Lock()
	defer x.mu.Unlock()
	if isNew := x.claim != nil && over(x.claim) && x.claim != x.before; isNew || !x.begun {
		x.before, x.begun, x.start = x.claim, true, offset
		return
	}
	x.start = min(x.start, offset)
}

// lease gives the image of r's partition, acquired for r's claim: as a rule it is. The error is fault.Unavailable,
// record.ErrNotRun for a claim that is ending, or ctx's.
func (s *offsetStore) lease(ctx context.Context, r *record.Record) (lease, error) {
	if r.TopicID == [16]byte{} {
		return lease{}, s.held(r, errNoTopicID)
	}
	x := s.image(partition{r.TopicID, r.Partition})
	for {
		if l, ok := x.is(r.Soft()); ok {
			return l, nil
		}
		if r.Ending() {
			return lease{}, errors.Join(record.ErrNotRun, errClaimOver)
		}
		if err := s.acquire(ctx, x, r); err != nil {
			return lease{}, err
		}
	}
}

// acquire acquires x for r's claim, unless one of those who wait has done so.
func (s *offsetStore) acquire(ctx context.Context, x *image, r *record.Record) error {
	if !x.rest(ctx, r) {
		return ctx.Err()
	}
	err := s.claim(ctx, x, r)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errOffsets):
		return s.held(r, err)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fault.Unavailable(err, fault.Database)
}

func (s *offsetStore) claim(ctx context.Context, x *image, r *record.Record) (err error) {
	in := s.rt.in
	for range in.cfg.MaxConns + 1 { // each connection of the pool may have died there
		since := time.Now()
		err = s.bump(ctx, x, r)
		if doubtOf(err) != none && in.renew(since) {
			continue
		}
		if err == nil || isServerError(err) || isConnect(err) || errors.Is(err, errOffsets) {
			break
		}
	}
	return err
}

// bump reads and bumps the row. It has the turn, so that a group's COMMIT is answered before the row is read.
func (s *offsetStore) bump(ctx context.Context, x *image, r *record.Record) error {
	conn, err := s.rt.in.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err := x.takeTurn(ctx); err != nil {
		return err
	}
	defer x.endTurn()
	if _, ok := x.is(r.Soft()); ok || r.Ending() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	epoch, row, err := scanOffsets(conn.QueryRow(ctx, acquireSQL, s.rt.consumer, x.at.topic.String(), x.at.n))
	if err == nil {
		x.become(r.Soft(), epoch, row)
	}
	return err
}

// rest waits until x may be acquired again; false when that is over before.
func (x *image) rest(ctx context.Context, r *record.Record) bool {
	x.mu.Lock()
	d := time.Until(x.rests)
	x.mu.Unlock()
	return d <= 0 || backoff.WaitUnless(ctx, d, r.Soft())
}

// held is for a partition of which nobody can tell what is done: nothing of it runs.
func (s *offsetStore) held(r *record.Record, err error) error {
	if s.image(partition{r.TopicID, r.Partition}).first(record.ReportOffsetsHeld) {
		s.rt.in.report(record.Report{
			Kind: record.ReportOffsetsHeld, Route: s.rt.cfg.Name, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Err: err,
			Hint: "nobody can tell what of this partition is done, so nothing of it runs; see headrace.offsets",
		})
	}
	return fault.Unavailable(err, "route "+s.rt.cfg.Name)
}

// overtakenTold is after how many times in a row a partition that others acquire is reported.
const overtakenTold = 3

// overtaken is told that a mark was fenced off, or that nobody knows what became of it.
func (s *offsetStore) lose(ls []mark, overtaken bool) {
	for i := range ls {
		x := ls[i].img
		x.lose(ls[i].lease, overtaken)
		x.mu.Lock()
		times, claim := x.overtook, x.claim
		x.mu.Unlock()
		if !overtaken || times < overtakenTold || over(claim) || !x.first(record.ReportOvertaken) {
			continue
		}
		s.rt.in.report(record.Report{
			Kind: record.ReportOvertaken, Route: s.rt.cfg.Name, Topic: ls[i].topicName(), Partition: x.at.n, Offset: ls[i].low,
			Hint: "another process acquires this partition while this one's claim lives: a member that has lost it and does not know, " +
				"or another consumer of the same group name on this database",
		})
	}
}

func over(claim <-chan struct{}) bool {
	select {
	case <-claim:
		return true
	default:
		return false
	}
}

func (m *mark) topicName() string {
	if len(m.rs) > 0 {
		return m.rs[0].Topic
	}
	return m.img.at.topic.String()
}

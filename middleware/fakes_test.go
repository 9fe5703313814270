package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// row is the inbox's memory of an identity.
type row struct {
	outcome     record.Outcome
	coordinates int64
	grave       dedup.Grave
}

// fakeInbox behaves as dedup does: it forms groups across messages, settles after "COMMIT", leaves a failed record's
// followers not run, and remembers by identity. Its transactions are nil.
type fakeInbox struct {
	timeout time.Duration
	// commit says whether a group's COMMIT succeeds. An error that wraps errUnknown comes after it has.
	commit func(rs []*record.Record) error
	// bury may fail before the row is written.
	bury func(r *record.Record) error
	// look may fail before the inbox answers, enter before a call is let in.
	look  func() error
	enter func(r *record.Record) error

	queue   chan *submission
	mu      sync.Mutex
	rows    map[uuid.UUID]row
	effects map[int64]int // by offset
	groups  int
	ran     int
	looked  int // records that Look was asked about
	calling int // calls between Enter and leave
}

type submission struct {
	ctx   context.Context
	rs    []*record.Record
	apply dedup.Apply
	done  chan struct{}
}

var errUnknown = errors.New("reply to COMMIT lost")

func newInbox(writers, maxGroup int) *fakeInbox {
	in := &fakeInbox{
		timeout: 5 * time.Second, queue: make(chan *submission),
		rows: map[uuid.UUID]row{}, effects: map[int64]int{},
		commit: func([]*record.Record) error { return nil }, bury: func(*record.Record) error { return nil },
		look: func() error { return nil }, enter: func(*record.Record) error { return nil },
	}
	for range writers {
		go func() {
			for s := range in.queue {
				in.group(in.gather(s, maxGroup))
			}
		}()
	}
	return in
}

func (in *fakeInbox) close() { close(in.queue) }

func (in *fakeInbox) Run(ctx context.Context, rs []*record.Record, work dedup.Work) {
	s := &submission{ctx: ctx, rs: rs, apply: work.(dedup.Apply), done: make(chan struct{})}
	select {
	case in.queue <- s:
		<-s.done
	case <-ctx.Done():
		for _, r := range rs {
			r.Err = context.Cause(ctx)
		}
	}
}

func (in *fakeInbox) gather(s *submission, most int) []*submission {
	group, n := []*submission{s}, len(s.rs)
	for n < most {
		select {
		case s, ok := <-in.queue:
			if !ok {
				return group
			}
			group, n = append(group, s), n+len(s.rs)
		default:
			return group
		}
	}
	return group
}

func (in *fakeInbox) group(subs []*submission) {
	var ran []*record.Record
	outcome := map[*record.Record]record.Outcome{}
	for _, s := range subs {
		failed := map[string]bool{}
		for _, r := range s.rs {
			if failed[r.Domain()] {
				r.Err = record.ErrNotRun
				continue
			}
			o, err := in.one(s, r)
			if r.Err = err; err != nil {
				failed[r.Domain()] = r.Domain() != ""
				continue
			}
			ran, outcome[r] = append(ran, r), o
		}
	}
	in.settle(ran, outcome)
	for _, s := range subs {
		close(s.done)
	}
}

func (in *fakeInbox) one(s *submission, r *record.Record) (record.Outcome, error) {
	if err := context.Cause(s.ctx); err != nil {
		return 0, err
	}
	in.mu.Lock()
	was, seen := in.rows[r.Identity.Key]
	in.ran++
	in.mu.Unlock()
	switch own := was.coordinates == r.Identity.Coordinates; {
	case seen && was.outcome == record.Dead && r.Replay:
		in.forget(r)
	case seen && own && was.outcome == record.Dead:
		return 0, fault.Permanent(&dedup.DeadError{Reason: was.grave.Reason, Text: was.grave.Err})
	case seen && own:
		return was.outcome, nil
	case seen:
		return record.Duplicate, nil
	}
	err := in.attempt(s, r)
	if _, skip := fault.AsSkip(err); skip {
		return record.Skipped, nil
	}
	return record.Effected, err
}

// attempt runs the handler on a goroutine of its own, so that runtime.Goexit ends an attempt and no writer.
func (in *fakeInbox) Look(ctx context.Context, rs []*record.Record) ([]dedup.Answer, error) {
	if err := in.look(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.looked += len(rs)
	answers := make([]dedup.Answer, len(rs))
	for i, r := range rs {
		answers[i] = in.answer(r)
	}
	return answers, nil
}

func (in *fakeInbox) answer(r *record.Record) dedup.Answer {
	was, seen := in.rows[r.Identity.Key]
	switch own := was.coordinates == r.Identity.Coordinates; {
	case !seen:
		return dedup.Fresh
	case was.outcome == record.Dead && r.Replay:
		return dedup.DeadReplay
	case own && was.outcome == record.Dead:
		return dedup.DeadOwn
	case own && was.outcome == record.Skipped:
		return dedup.OwnSkipped
	case own:
		return dedup.Own
	}
	return dedup.Duplicate
}

func (in *fakeInbox) Enter(_ context.Context, r *record.Record) (leave func(), err error) {
	if err := in.enter(r); err != nil {
		return nil, err
	}
	in.count(1)
	return func() { in.count(-1) }, nil
}

func (in *fakeInbox) count(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.calling += n
}

func (in *fakeInbox) inCalls() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.calling
}

func (in *fakeInbox) attempt(s *submission, r *record.Record) error {
	ctx, cancel := context.WithTimeout(s.ctx, in.timeout)
	defer cancel()
	began, failed := time.Now(), make(chan error, 1)
	r.Begin()
	go func() {
		err := error(&fault.PanicError{Value: "runtime.Goexit"})
		defer func() {
			if p := recover(); p != nil {
				err = fault.Recovered(p)
			}
			failed <- err
		}()
		err = s.apply(ctx, nil, r)
	}()
	err := <-failed
	r.End()
	r.Spent += time.Since(began)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fault.Transient(fmt.Errorf("attempt's deadline: %w", err))
	}
	return err
}

func (in *fakeInbox) settle(ran []*record.Record, outcome map[*record.Record]record.Outcome) {
	err := in.commit(ran)
	if err != nil && !errors.Is(err, errUnknown) {
		for _, r := range ran {
			r.Err = fault.Unavailable(err, fault.Database)
		}
		return
	}
	in.mu.Lock()
	in.groups++
	for _, r := range ran {
		if _, seen := in.rows[r.Identity.Key]; !seen {
			in.rows[r.Identity.Key] = row{outcome: outcome[r], coordinates: r.Identity.Coordinates}
			if outcome[r] == record.Effected {
				in.effects[r.Offset]++
			}
		}
	}
	in.mu.Unlock()
	for _, r := range ran {
		if err != nil {
			r.Err = fault.Unavailable(err, fault.Database)
			continue
		}
		r.Settle(outcome[r])
	}
}

// forget lets a replay take over a dead row.
func (in *fakeInbox) forget(r *record.Record) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.rows, r.Identity.Key)
}

func (in *fakeInbox) Bury(ctx context.Context, r *record.Record, g dedup.Grave) (dedup.Answer, error) {
	if err := in.bury(r); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	was, seen := in.rows[r.Identity.Key]
	switch own := was.coordinates == r.Identity.Coordinates; {
	case !seen:
		in.rows[r.Identity.Key] = row{record.Dead, r.Identity.Coordinates, g}
		return dedup.Buried, nil
	case own && was.outcome == record.Dead:
		return dedup.DeadOwn, nil
	case own && was.outcome == record.Skipped:
		return dedup.OwnSkipped, nil
	case own:
		return dedup.Own, nil
	}
	return dedup.Duplicate, nil
}

func (in *fakeInbox) knows(r *record.Record) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	_, seen := in.rows[r.Identity.Key]
	return seen
}

func (in *fakeInbox) effectsOf(offset int64) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.effects[offset]
}

// fakeTopic is a dead letter topic.
type fakeTopic struct {
	// write may fail; an error that wraps errUnknown comes after the letter was written.
	write func(ctx context.Context, l dlq.Letter) error

	mu      sync.Mutex
	letters map[int64][]dlq.Letter
}

func newTopic() *fakeTopic {
	return &fakeTopic{letters: map[int64][]dlq.Letter{}, write: func(ctx context.Context, _ dlq.Letter) error { return ctx.Err() }}
}

func (t *fakeTopic) Write(ctx context.Context, l dlq.Letter) error {
	err := t.write(ctx, l)
	if err != nil && !errors.Is(err, errUnknown) {
		return err
	}
	t.mu.Lock()
	t.letters[l.Record.Offset] = append(t.letters[l.Record.Offset], l)
	t.mu.Unlock()
	return err
}

func (t *fakeTopic) of(offset int64) []dlq.Letter {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.letters[offset]
}

// reports collects what an operator is told.
type reports struct {
	mu  sync.Mutex
	all []record.Report
}

func (rs *reports) add(r record.Report) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.all = append(rs.all, r)
}

func (rs *reports) kinds() (kinds []string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.all {
		kinds = append(kinds, r.Kind)
	}
	return kinds
}

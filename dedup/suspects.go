package dedup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/record"
)

const (
	// suspectDeaths is after how many deaths of a claim its records run one at a time, each marked.
	suspectDeaths = 2
	// killerDeaths is how many processes in a row must have died in one marked record.
	killerDeaths = 3
	// suspectBatches is how many of the largest groups may have been in flight when a process died.
	suspectBatches = 20
	// sayTimeout bounds one word of a process that lives: Close waits for it.
	sayTimeout = time.Second
	// vouchEvery is how often a process looks whether it was taken for dead.
	vouchEvery = 10 * time.Second
	// markGrace is how long a mark may outlive its record's last possible moment while its process is alive.
	markGrace = 5 * time.Second
)

var (
	errMarked = errors.New("another member has marked the record and may still run it")
	errDoubt  = errors.New("a process has died while it ran the record, and in this one a handler is stuck that may end it too: " +
		"it is tried once that handler has returned, or in another process")
)

// suspects finds a record that takes its process down (out of memory, os.Exit in a library): no error is ever seen of
// it, only claims that start again and again at the same offset.
//
//	start 1, 2: die ─► start 3: one at a time, each marked, dies ─► 4: its mark is found ─► dies again, and in 5 ─► start 6
//
// The killer is dead then (crash_loop), after three deaths that are its own; its neighbours have their effects. A record
// that ran when a node was lost, or an impatient operator sent SIGKILL, is not convicted for that: once is no proof. And
// a claim that was given up in order is no death, however often: deployments while its head is held, or an idle topic,
// make nobody a suspect. Nor is one that was lost by a process which lives (a network, a pause, a database that was away
// when the claim was to be given up): it says so within vouchEvery, and what it made suspect is so no more.
//
// Each record has a count of its own, which stands until a claim begins behind the record. So killers
// may come in any turn, and a conviction outlasts the process that the next one ends before it is a dead row:
//
//	one count a partition: A ends process 3, B ends 4 ─► A's is forgotten ─► A ends 5, B's is forgotten ─► … for ever
type suspects struct {
	rt *Route

	any   atomic.Bool // there are some: the usual answer is one load
	mu    sync.Mutex
	until map[partition]int64
}

type partition struct {
	topic uuid.UUID
	n     int32
}

// Claimed tells the route that a claim of a partition starts at offset, that of its first record: it is the same at each
// start as long as nothing is committed, also where the committed offset points into a gap. Call it once a claim, before
// its first Run, and Released when the claim ends in order. An error is the database's; the claim may start all the same.
// What it learns besides: at which places ahead a record has died.
func (rt *Route) Claimed(ctx context.Context, topicID uuid.UUID, part int32, offset int64) error {
	if rt.offsets != nil {
		rt.offsets.begins(partition{topicID, part}, offset)
	}
	var deaths int
	err := rt.in.pool.QueryRow(ctx, claimedSQL, rt.consumer, topicID.String(), part, offset, rt.in.id.String(),
		rt.suspects.inFlight(), suspectDeaths).Scan(&deaths)
	if err != nil {
		return fmt.Errorf("count the deaths of a claim: %w", err)
	}
	rt.suspects.note(partition{topicID, part}, offset, deaths)
	if rt.placed() {
		return nil
	}
	return rt.findDead(ctx, partition{topicID, part}, offset)
}

// Released tells the route that this process gives its claim of a partition up, alive. A claim that nobody releases
// counts as a death when the next one starts.
func (rt *Route) Released(ctx context.Context, topicID uuid.UUID, part int32) error {
	_, err := rt.in.pool.Exec(ctx, releasedSQL, rt.consumer, topicID.String(), part, rt.in.id.String())
	if rt.offsets != nil {
		rt.offsets.flush(ctx, rt.offsets.image(partition{topicID, part})) // may wait for a COMMIT: what ctx leaves of time
	}
	if err != nil {
		return fmt.Errorf("release a claim: %w", err)
	}
	return nil
}

func (s *suspects) note(p partition, offset int64, deaths int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil {
		s.until = make(map[partition]int64)
	}
	delete(s.until, p)
	if deaths >= suspectDeaths {
		s.until[p] = offset + s.inFlight()
	}
	s.any.Store(len(s.until) > 0)
}

// recount ends the suspicion of a partition some of whose dead turned out to be alive.
func (s *suspects) recount(p partition, deaths int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if deaths < suspectDeaths {
		delete(s.until, p)
	}
	s.any.Store(len(s.until) > 0)
}

// inFlight is how far ahead of a claim's start a record may be that was in flight when the process died.
func (s *suspects) inFlight() int64 { return int64(suspectBatches * s.rt.in.cfg.MaxBatch) }

func (s *suspects) has(r *record.Record) bool {
	if !s.any.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	until, ok := s.until[partition{r.TopicID, r.Partition}]
	return ok && r.Offset < until
}

// mark makes it durable that r runs now, with nothing beside it. The error says why it must not: the processes that have
// died in it convict it; one that may be alive, or a stuck handler, lets it wait.
//
// Where a handler is stuck the process may die of that, so it is no proof then, neither against r nor, as two marks stand,
// against the stuck one. Only who has never been in a process that died runs beside it: else a killer that comes behind
// such a handler each time would end process after process, and nothing would be learned. What is stuck is bounded by
// its attempts; its process, by MaxPollInterval.
//
// It is false for a record that is stuck itself: the mark of that run stands for this one.
func (s *suspects) mark(ctx context.Context, r *record.Record) (marked bool, err error) {
	if s.rt.in.stuck.has(s.rt, r) {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	alive := max(s.rt.cfg.AttemptTimeout, s.rt.cfg.CallTimeout) + s.rt.in.cfg.HardGrace + s.rt.in.cfg.CommitTimeout + markGrace
	_, stuck := s.rt.in.Stuck()
	var guilty, doubtful, fresh bool
	var deaths int
	err = s.rt.in.pool.QueryRow(ctx, markSQL, s.rt.consumer, r.TopicID.String(), r.Partition, r.Offset,
		s.rt.in.id.String(), alive.Milliseconds(), killerDeaths, stuck).Scan(&guilty, &doubtful, &fresh, &deaths)
	switch {
	case err != nil:
		return false, fault.Unavailable(err, fault.Database)
	case guilty && fresh:
		return false, fault.Busy(errMarked)
	case guilty:
		s.rt.reportKiller(r)
		return false, fault.Permanent(ErrCrashLoop)
	case doubtful:
		return false, fault.Busy(errDoubt)
	}
	s.recount(partition{r.TopicID, r.Partition}, deaths)
	return true, nil
}

// unmark says that r's process has survived it.
func (s *suspects) unmark(r *record.Record) {
	ctx, cancel := context.WithTimeout(context.Background(), acquireTimeout)
	defer cancel()
	_, err := s.rt.in.pool.Exec(ctx, unmarkSQL, s.rt.consumer, r.TopicID.String(), r.Partition, r.Offset,
		s.rt.in.id.String())
	if err != nil {
		// The mark stays, and is this process's own: it convicts nobody here, and the next mark takes it off.
		s.rt.in.cfg.Logger.WarnContext(ctx, "mark of a suspect stays for now", "route", s.rt.cfg.Name, "error", err)
	}
}

// vouch is for as long as the inbox is open. Between its looks there is nothing to be told: whoever took a claim over runs
// its records one at a time at worst. A server that did not answer the last time is not asked at the end: Close waits.
func (in *Inbox) vouch() {
	defer in.left()
	answers := true
	for backoff.Wait(in.ctx, in.cfg.vouchEvery/2+rand.N(in.cfg.vouchEvery)) {
		answers = in.say(in.ctx, aliveSQL) || in.ctx.Err() != nil
	}
	if answers {
		in.say(context.WithoutCancel(in.ctx), leaveSQL)
	}
}

// say tells the database that this process lives. Should that be away, it is told the next time, or what is suspect stays
// so: that is slow, not wrong.
func (in *Inbox) say(ctx context.Context, sql string) (said bool) {
	ctx, cancel := context.WithTimeout(ctx, sayTimeout)
	defer cancel()
	_, err := in.pool.Exec(ctx, sql, in.id.String())
	if err != nil && in.ctx.Err() == nil {
		in.cfg.Logger.DebugContext(ctx, "not told that this process lives", "error", err)
	}
	return err == nil
}

package parking

import (
	"strings"
	"time"
)

// SetLease makes the lease shorter than a policy may.
func (s *Store) SetLease(d time.Duration) { s.policy.Lease = d }

// SetBackoff makes rounds follow each other sooner than a policy's sums would be worth.
func (s *Store) SetBackoff(base, limit time.Duration) { s.policy.Base, s.policy.Cap = base, limit }

// Consumer is the route's number.
func (s *Store) Consumer() int32 { return s.consumer }

// Dawdle widens the windows between the statements of an append and of a finish, in which only their locks keep them
// apart.
func (s *Store) Dawdle() {
	s.sql.records = strings.NewReplacer("with added as", "with nap as materialized (select pg_sleep(0.01 * random())), added as",
		"from unnest", "from nap, unnest").Replace(s.sql.records)
	s.sql.drop += " and (select pg_sleep(0.005 * random())) is not null"
}

// BreakAppend is a mutant: an append to a line that is there does not lock it.
func (s *Store) BreakAppend() {
	s.sql.lines = strings.Replace(s.sql.lines, "do update set key_id = l.key_id", "do nothing", 1)
}

// BreakFinish is a mutant: a finish looks whether records are left without having locked the line before.
func (s *Store) BreakFinish() { s.sql.lock = "" }

// Statements are the store's, for a look at their plans.
func (s *Store) Statements() map[string]string {
	q := &s.sql
	return map[string]string{
		"settings": q.settings, "room": q.room, "lines": q.lines, "records": q.records, "claim": q.claim, "suspect": q.suspect,
		"start": q.start, "release": q.release, "load": q.load, "renew": q.renew, "alive": q.alive, "lock": q.lock, "settle": q.settle, "fail": q.fail, "drop": q.drop,
		"next": q.next, "blocked": q.blocked, "stats": q.stats, "retry": q.retry,
	}
}

// Owes says that the Source has something to write that it could not.
func (s *Source) Owes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.debts) > 0
}

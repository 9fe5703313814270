package parking

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headrace/headrace/record"
)

const (
	// aloneAfter is how many deaths of a process make a line run alone: perhaps it was another one's record.
	aloneAfter = 1
	// convictedAfter is how many deaths convict the head: the first in company, three alone.
	convictedAfter = aloneAfter + 3
)

// Lease is what one claim took: lines that nobody else works on for as long as it is renewed. It belongs to one goroutine
// at a time. A lease that nobody renews runs out by itself.
type Lease struct {
	// Lines are those that were taken, the one that is due for longest first.
	Lines []*Line

	store *Store
	token int64
}

// Line is the records of one key.
type Line struct {
	// Key is its KeyID.
	Key int64
	// Round is how often its head has failed: 0 for a head that was a follower, and was never tried.
	Round int
	// Deaths is how many processes have claimed it and not come back. From one on its head runs alone.
	Deaths int
	// Late is for how long it was due when it was claimed. It is the time since the last lease where that ran out.
	Late time.Duration
	// Records are its first ones, in order. See Load.
	Records []*Parked

	started bool // this claim counts among its starts, or may
}

// CrashLoop says that the head has taken down its process so often, also alone, that it must not run again.
func (l *Line) CrashLoop() bool { return l.Deaths >= convictedAfter }

// Parked is a record that waits.
type Parked struct {
	Place

	// Record is nil, and Err an ErrEnvelope, if the row cannot be read.
	Record *record.Record
	Err    error
	// History is how its rounds ended, empty for one that was never tried.
	History History
	// ParkedAt is by the database's clock.
	ParkedAt time.Time

	waited time.Duration // since then, when it was loaded
	loaded time.Time
}

// age is for how long the record is being tried: since it was parked, or, where it only waited behind another then, since
// it first failed.
func (p *Parked) age() time.Duration {
	if len(p.History) == 0 {
		return 0
	}
	return max(min(p.waited+time.Since(p.loaded), time.Since(p.History[0].At)), 0)
}

// Token is the lease's: no other has it, ever.
func (l *Lease) Token() int64 { return l.token }

// Load reads the lines' first records: at most so many of all, and about so many bytes, but at least one of each line as
// far as they reach. A line may have more of them; one that gets none has to be given back. From here on the end of the
// process counts as a suspect's death; one that the lease has lost gets no records.
func (l *Lease) Load(ctx context.Context, records int, bytes int64) error {
	keys, by := make([]int64, len(l.Lines)), make(map[int64]*Line, len(l.Lines))
	lost := map[int64]bool{}
	err := l.store.transact(ctx, func(b *pgx.Batch) {
		for i, line := range l.Lines {
			keys[i], by[line.Key] = line.Key, line
			line.Records = nil
			if !line.started {
				line.started = true // perhaps, should the answer be lost
				b.Queue(l.store.sql.start, l.store.consumer, line.Key, l.token).Exec(func(tag pgconn.CommandTag) error {
					lost[line.Key] = tag.RowsAffected() == 0
					return nil
				})
			}
		}
		each := max(1, records/max(1, len(keys)))
		b.Queue(l.store.sql.load, l.store.consumer, keys, each, bytes, records).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				p, err := scanParked(rows)
				if err != nil {
					return err
				}
				if line := by[p.Key]; !lost[p.Key] {
					line.Records = append(line.Records, p)
				}
			}
			return rows.Err()
		})
	})
	if err != nil {
		return fmt.Errorf("load parked records: %w", err)
	}
	return nil
}

func scanParked(rows pgx.Rows) (*Parked, error) {
	p := &Parked{}
	var envelope, history []byte
	var at, waited int64
	if err := rows.Scan(&p.Key, &p.TopicID, &p.Partition, &p.Offset, &envelope, &history, &at, &waited); err != nil {
		return nil, err
	}
	p.ParkedAt, p.waited, p.loaded = time.UnixMilli(at), time.Duration(waited)*time.Millisecond, time.Now()
	p.Record, p.Err = Decode(envelope)
	p.History, _ = DecodeHistory(history) // it is for the operator: a record is not lost for it
	return p, nil
}

// Renew goes on with the lease. It gives the lines that it has lost: another process has them, and whatever is done for
// them here changes nothing any more. They are forgotten, and that this process lives is noted, so that the lease that ran
// out does not count as a death.
func (l *Lease) Renew(ctx context.Context) (lost []*Line, err error) {
	keys := l.keys()
	kept := make(map[int64]bool, len(keys))
	err = l.store.transact(ctx, func(b *pgx.Batch) {
		b.Queue(l.store.sql.renew, l.store.consumer, keys, l.token, millis(l.store.policy.Lease)).Query(func(rows pgx.Rows) error {
			var key int64
			_, err := pgx.ForEachRow(rows, []any{&key}, func() error { kept[key] = true; return nil })
			return err
		})
		b.Queue(l.store.sql.alive, l.store.consumer, keys, l.token)
	})
	if err != nil {
		return nil, fmt.Errorf("renew the lease of %d parked keys: %w", len(keys), err)
	}
	l.Lines, lost = split(l.Lines, func(line *Line) bool { return kept[line.Key] })
	return lost, nil
}

// part takes the lines of ends out of the lease, into one of their own, which another goroutine may finish. Nobody renews it.
func (l *Lease) part(ends []End) *Lease {
	theirs := make(map[int64]bool, len(ends))
	for i := range ends {
		theirs[ends[i].Key] = true
	}
	own := &Lease{store: l.store, token: l.token}
	own.Lines, l.Lines = split(l.Lines, func(line *Line) bool { return theirs[line.Key] })
	return own
}

func (l *Lease) keys() []int64 {
	keys := make([]int64, len(l.Lines))
	for i, line := range l.Lines {
		keys[i] = line.Key
	}
	return keys
}

// split leaves lines as they are: their holder may be going through them.
func split(lines []*Line, keep func(*Line) bool) (kept, others []*Line) {
	for _, line := range lines {
		if keep(line) {
			kept = append(kept, line)
		} else {
			others = append(others, line)
		}
	}
	return kept, others
}

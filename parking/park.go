package parking

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/record"
)

// Entry is a record that is to be parked.
type Entry struct {
	// Record has its identity. It is only read.
	Record *record.Record
	// Key is the line in which it stands, as KeyID has it.
	Key int64
	// Failed is how it failed, nil for a follower: one that did not run, because its key is parked.
	Failed *Failure
	// Delay is what its handler asked for, 0 for the policy's own. A follower has none: it is tried when its line comes to
	// it.
	Delay time.Duration
}

// Place is where a record was read, and in which line it stands.
type Place struct {
	Key       int64
	TopicID   uuid.UUID
	Partition int32
	Offset    int64
}

// Park makes the places of all entries durable, or of none: after it each may be settled as parked. One that is parked
// already stays as it is. An empty line gets its due time from its first record; to a line that is there they are added,
// in the order of their offsets, and its due time stays.
//
// The error is ErrFull when the route has reached its limits. After any other error the entries may or may not be parked,
// and parking them again is safe.
func (s *Store) Park(ctx context.Context, entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	c := s.columns(entries)
	full := &FullError{MaxRecords: s.policy.MaxRecords, MaxAge: s.policy.MaxAge}
	err := s.open(ctx, func(b *pgx.Batch) {
		b.Queue(s.sql.room, s.consumer).QueryRow(func(row pgx.Row) error {
			var age int64
			err := row.Scan(&full.Records, &age)
			full.Oldest = time.Duration(age) * time.Millisecond
			return err
		})
		b.Queue(s.sql.lines, s.consumer, c.keys, c.delays, c.rounds)
		b.Queue(s.sql.records, s.consumer, c.keys, uuids(c.topics), c.parts, c.offs, uuids(c.ids), c.envelopes, c.histories)
	}, func() error {
		if full.Records >= full.MaxRecords || full.Oldest >= full.MaxAge {
			return full
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("park %d records: %w", len(entries), err)
	}
	return nil
}

// columns are the entries as the statements take them.
type columns struct {
	keys, delays, offs   []int64
	rounds, parts        []int32
	topics, ids          []uuid.UUID
	envelopes, histories [][]byte
}

func (s *Store) columns(entries []Entry) *columns {
	c := &columns{}
	for i := range entries {
		e := &entries[i]
		var delay time.Duration
		var round int32
		var history History
		if e.Failed != nil {
			delay, round, history = s.policy.delay(e.Delay, 1), 1, history.With(*e.Failed)
		}
		c.keys, c.delays, c.rounds = append(c.keys, e.Key), append(c.delays, millis(delay)), append(c.rounds, round)
		c.topics, c.parts, c.offs = append(c.topics, e.Record.TopicID), append(c.parts, e.Record.Partition), append(c.offs, e.Record.Offset)
		c.ids = append(c.ids, e.Record.Identity.Key)
		c.envelopes, c.histories = append(c.envelopes, Encode(e.Record)), append(c.histories, history.encode())
	}
	return c
}

// Blocked says of each key whether records of it are parked at this moment, so that others must stay behind them. An
// inbox asks it in its own claim statement; this is for whoever decides before that, to call out for a record or not.
func (s *Store) Blocked(ctx context.Context, keys []int64) ([]bool, error) {
	rows, err := s.pool.Query(ctx, s.sql.blocked, s.consumer, keys)
	if err != nil {
		return nil, fmt.Errorf("ask which keys are parked: %w", err)
	}
	blocked, err := pgx.CollectRows(rows, pgx.RowTo[bool])
	if err != nil {
		return nil, fmt.Errorf("ask which keys are parked: %w", err)
	}
	return blocked, nil
}

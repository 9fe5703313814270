package main

import (
	"context"
	"slices"

	"github.com/headrace/headrace/dlq"
)

// survey is what a look at the topic has found before anything is sent. What it saw bounds the replay: what arrives while
// somebody thinks is not part of the answer.
type survey struct {
	snapshot dlq.Snapshot
	// counts are the letters that are meant, by why they are dead.
	counts tally
	// states is what became of the letters' records; nil if nobody asked.
	states map[spot]dlq.Outcome
	// unknown is a letter of each route of whose records the database knows one not.
	unknown []row
	ignored ignored
}

// spot is where a letter stands in its topic.
type spot struct {
	partition int32
	offset    int64
}

func spotOf(e *dlq.Entry) spot { return spot{e.Partition, e.Offset} }

// state is what became of a letter's record, "" if nobody asked.
func (v *survey) state(e *dlq.Entry) dlq.Outcome { return v.states[spotOf(e)] }

// look reads what matches, and asks the database about it if that is wanted.
func (f *replayFlags) look(ctx context.Context, s streams, cfg dlq.ReadConfig) (*survey, error) {
	v := &survey{counts: tally{}, ignored: ignored{}}
	fill := func([]row) error { return nil }
	if f.asksInbox() {
		pool, closes, err := f.dsn.open(ctx, s)
		if err != nil {
			return nil, err
		}
		defer closes()
		v.states = map[spot]dlq.Outcome{}
		fill = func(rows []row) error { return askOutcomes(ctx, pool, rows) }
		defer func() { _ = noteUnknownRoutes(ctx, s, pool, v.unknown) }() // a note is not worth the replay
	}
	var rows []row
	flush := func() error {
		if err := fill(rows); err != nil {
			return err
		}
		f.count(v, rows)
		rows = rows[:0]
		return nil
	}
	var err error
	v.snapshot, err = dlq.Read(ctx, cfg, func(e *dlq.Entry) error {
		if rows = append(rows, newRow(e)); len(rows) == page {
			return flush()
		}
		return nil
	})
	if err != nil {
		return nil, topicError(f.topic, err)
	}
	return v, flush()
}

// count takes letters into the survey.
func (f *replayFlags) count(v *survey, rows []row) {
	for _, r := range rows {
		if v.states != nil {
			v.states[spotOf(r.e)] = r.outcome
			v.noteUnknown(r)
		}
		if f.wants(r.outcome) {
			v.counts[why(r.e)]++
			v.ignored.see(f, r.e)
		}
	}
}

func (v *survey) noteUnknown(r row) {
	same := func(u row) bool {
		return u.e.Envelope.Group == r.e.Envelope.Group && u.e.Envelope.Route == r.e.Envelope.Route
	}
	if r.outcome == dlq.OutcomeUnknown && !slices.ContainsFunc(v.unknown, same) {
		v.unknown = append(v.unknown, r)
	}
}

// asksInbox: a DATABASE_URL alone is no wish to be connected.
func (f *replayFlags) asksInbox() bool { return len(f.states) > 0 || f.dsn.value != "" }

// wants says whether records of which this became are to be replayed.
func (f *replayFlags) wants(state dlq.Outcome) bool {
	return len(f.states) == 0 || slices.Contains(f.states, string(state))
}

// skip is what --state leaves out.
func (f *replayFlags) skip(v *survey) func(*dlq.Entry) dlq.Skip {
	return func(e *dlq.Entry) dlq.Skip {
		if state := v.state(e); !f.wants(state) {
			return dlq.Skip(state)
		}
		return ""
	}
}

// states are what --state knows.
func states() []string {
	return []string{
		string(dlq.OutcomeDead), string(dlq.OutcomeEffected), string(dlq.OutcomeSkipped), string(dlq.OutcomeDuplicate), string(dlq.OutcomeUnknown),
	}
}

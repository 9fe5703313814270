package dedup

import (
	"context"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// Look says what the inbox knows of rs, in their order: Own, OwnSkipped, Duplicate, IDConflict, DeadOwn, DeadReplay, or
// Fresh for a record that it has no row of, Blocked if its key is parked besides. It inserts nothing and holds no transaction, so it is an answer of the moment:
// Run asks again. It is for what comes before a record's transaction, a call out that nobody needs any more.
//
// The error is fault.Unavailable when the database is away, or the cause of ctx.
func (rt *Route) Look(ctx context.Context, rs []*record.Record) ([]Answer, error) {
	if len(rs) == 0 {
		return nil, nil
	}
	if rs[0].Replay && rt.replays != nil {
		return rt.replays.Look(ctx, rs)
	}
	if rt.offsets != nil {
		return rt.lookAtOffsets(ctx, rs)
	}
	rt.recall(rs...)
	return rt.lookAtRows(ctx, rs)
}

func (rt *Route) lookAtRows(ctx context.Context, rs []*record.Record) ([]Answer, error) {
	cols := &columns{}
	for _, r := range rs {
		rt.column(cols, r)
	}
	var err error
	for range rt.in.cfg.MaxConns + 1 { // each connection of the pool may have died there
		answers := make([]Answer, len(rs))
		if err = rt.look(ctx, cols, rs, answers); err == nil {
			return answers, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if isServerError(err) || isConnect(err) {
			break
		}
	}
	return nil, fault.Unavailable(err, fault.Database)
}

func (rt *Route) look(ctx context.Context, cols *columns, rs []*record.Record, answers []Answer) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	conn, err := rt.in.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	err = readAnswers(ctx, conn.Conn(), seenSQL, rt.consumer, cols, func(i int, a Answer) { answers[i] = a })
	if err != nil {
		return err
	}
	return rt.lookParked(ctx, conn.Conn(), rs, answers)
}

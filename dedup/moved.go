package dedup

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// A record may die under its place, because its identity cannot be read or is another record's, and come back in a
// replay that is known by another: the decoder was mended, or an operator gave it a new one. Then it has two rows, and
// while the one of its place says dead, its letter looks as if nothing had been done for it, and a redelivery of its
// source that is known by its place again would produce the letter again. So that row says moved before the replay is
// settled:
//
//	outcome   committed under the new identity; a crash here: the replay is delivered again and meets its own row
//	moved     committed; a crash here: the same
//	settle    the offset may move
//
// In between the row is dead as before, so whoever meets it does not run.

// mustMove says whether e has a row under its place that is not its own any more.
func (rt *Route) mustMove(e *entry) bool {
	id := &e.r.Identity
	return e.r.Replay && !rt.placed() && id.Place != id.Key && id.Place != uuid.Nil
}

// withhold takes an outcome back that cannot be told yet, because nobody came to move its row: it is asked for again.
func (rt *Route) withhold(e *entry) {
	if e.outcome != record.Unsettled && rt.mustMove(e) && !e.moved {
		e.outcome = record.Unsettled
	}
}

// move says of the rows under the places of g's replays that they are over. Those whose cannot be written have no outcome.
func (rt *Route) move(g *group) {
	var places []byte
	var settled []*entry
	for _, e := range g.entries {
		if e.outcome != record.Unsettled && rt.mustMove(e) {
			places, settled = appendUUID(separated(places), e.r.Identity.Place), append(settled, e)
		}
	}
	if len(settled) == 0 {
		return
	}
	err := rt.writeMoved(array(places))
	for _, e := range settled {
		if e.moved = err == nil; !e.moved {
			e.outcome, e.err = record.Unsettled, fault.Unavailable(err, fault.Database)
		}
	}
}

func (rt *Route) writeMoved(places string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	for range rt.in.cfg.MaxConns + 1 { // each connection of the pool may have died there
		if _, err = rt.in.pool.Exec(ctx, movedSQL, rt.consumer, places); err == nil || isServerError(err) || isConnect(err) {
			return err
		}
	}
	return err
}

// moveBuried does the same for replays that were to be buried, and were dealt with after all.
func moveBuried(ctx context.Context, conn *pgx.Conn, consumer int32, batch []*burial, answers []Answer) error {
	var places []byte
	for i, b := range batch {
		if b.replay && b.id.Key != b.place && answers[i].Outcome() != record.Unsettled && answers[i].Outcome() != record.Dead {
			places = appendUUID(separated(places), b.place)
		}
	}
	if len(places) == 0 {
		return nil
	}
	_, err := conn.Exec(ctx, movedSQL, consumer, array(places))
	return err
}

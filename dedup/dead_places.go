package dedup

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/record"
)

// deadPlaces are the places ahead of each claim at which a record has died. It may come again with an identity that could
// not be read then, and of which the inbox knows nothing: so what is read there is known by its place as before.
//
//	dead under its place, letter ─► an earlier record holds the offset ─► a build that can read it ─► its id is fresh: it runs
//
// A claim asks once, for as many offsets as may have been in flight, and knows it until it is so far behind them that none of
// those comes for the first time any more: a claim lives for months, and each of its records would be looked for.
type deadPlaces struct {
	any atomic.Bool // there are some: the usual answer is one load
	mu  sync.Mutex
	of  map[partition]deadAhead
}

type deadAhead struct {
	hashes map[uuid.UUID]int64 // by place, of the value that was there: a log may have been cut
	until  int64               // from this offset on they are forgotten
}

// Place keys rise with the offset, so it is a range of the index, with what the claim before has left there.
const deadPlacesSQL = `select message_id::text, value_hash from headrace.inbox
where consumer_id = $1::int and message_id between $2::text::uuid and $3::text::uuid and state = 2`

// findDead asks for a claim that starts at offset.
func (rt *Route) findDead(ctx context.Context, at partition, offset int64) error {
	last := offset + min(rt.suspects.inFlight(), math.MaxInt64/2-offset)
	rows, err := rt.in.pool.Query(ctx, deadPlacesSQL, rt.consumer,
		KeyAt(at.topic, at.n, offset).String(), KeyAt(at.topic, at.n, last).String())
	if err != nil {
		return fmt.Errorf("find the dead of a claim: %w", err)
	}
	ahead := deadAhead{map[uuid.UUID]int64{}, last + rt.suspects.inFlight()}
	var place string
	var hash int64
	_, err = pgx.ForEachRow(rows, []any{&place, &hash}, func() error {
		ahead.hashes[uuid.MustParse(place)] = hash
		return nil
	})
	if err != nil {
		return fmt.Errorf("find the dead of a claim: %w", err)
	}
	rt.died.put(at, ahead)
	return nil
}

func (d *deadPlaces) put(at partition, ahead deadAhead) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.of, at)
	if len(ahead.hashes) > 0 {
		if d.of == nil {
			d.of = map[partition]deadAhead{}
		}
		d.of[at] = ahead
	}
	d.any.Store(len(d.of) > 0)
}

// recall makes those of rs known by their places that died there.
func (rt *Route) recall(rs ...*record.Record) {
	d := &rt.died
	if !d.any.Load() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range rs {
		ahead, some := d.of[partition{r.TopicID, r.Partition}]
		switch {
		case !some, r.Replay:
		case r.Offset >= ahead.until:
			delete(d.of, partition{r.TopicID, r.Partition})
		default:
			if hash, died := ahead.hashes[r.Identity.Place]; died && hash == r.Identity.ValueHash {
				r.Identity.Key = r.Identity.Place
			}
		}
	}
	d.any.Store(len(d.of) > 0)
}

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
// A claim asks once, for as many offsets as may have been in flight.
type deadPlaces struct {
	any atomic.Bool // there are some: the usual answer is one load
	mu  sync.Mutex
	of  map[partition]map[uuid.UUID]int64 // and the hash of the value that was there: a log may have been cut
}

// Place keys rise with the offset, so it is a range of the index, with what the claim before has left there.
const deadPlacesSQL = `select message_id::text, value_hash from headrace.inbox
where consumer_id = $1::int and message_id between $2::text::uuid and $3::text::uuid and state = 2`

// findDead asks for a claim that starts at offset.
func (rt *Route) findDead(ctx context.Context, at partition, offset int64) error {
	last := offset + min(rt.suspects.inFlight(), math.MaxInt64-offset)
	rows, err := rt.in.pool.Query(ctx, deadPlacesSQL, rt.consumer,
		KeyAt(at.topic, at.n, offset).String(), KeyAt(at.topic, at.n, last).String())
	if err != nil {
		return fmt.Errorf("find the dead of a claim: %w", err)
	}
	keys := map[uuid.UUID]int64{}
	var key string
	var hash int64
	_, err = pgx.ForEachRow(rows, []any{&key, &hash}, func() error {
		keys[uuid.MustParse(key)] = hash
		return nil
	})
	if err != nil {
		return fmt.Errorf("find the dead of a claim: %w", err)
	}
	rt.died.put(at, keys)
	return nil
}

func (d *deadPlaces) put(at partition, keys map[uuid.UUID]int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.of, at)
	if len(keys) > 0 {
		if d.of == nil {
			d.of = map[partition]map[uuid.UUID]int64{}
		}
		d.of[at] = keys
	}
	d.any.Store(len(d.of) > 0)
}

// recall makes those of rs known by their places that died there.
func (rt *Route) recall(rs ...*record.Record) {
	if !rt.died.any.Load() {
		return
	}
	rt.died.mu.Lock()
	defer rt.died.mu.Unlock()
	for _, r := range rs {
		hash, died := rt.died.of[partition{r.TopicID, r.Partition}][r.Identity.Place]
		if died && hash == r.Identity.ValueHash && !r.Replay {
			r.Identity.Key = r.Identity.Place
		}
	}
}

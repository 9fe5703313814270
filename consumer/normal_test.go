package consumer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// slowly is a route whose items of the kind "slow" fail twice, and of the kind "never" always, each time after more time
// than one attempt has: what is left of the budget then is less than the next one takes.
func slowly(tries map[string]int) Route[item] {
	const attempt = 250 * time.Millisecond
	var mu sync.Mutex
	return Route[item]{
		Name: "slowly", Topic: "orders",
		Apply: func(ctx context.Context, tx pgx.Tx, e Event[item]) error {
			mu.Lock()
			tries[e.Data.ID]++
			n := tries[e.Data.ID]
			mu.Unlock()
			if e.Data.Kind == "never" || e.Data.Kind == "slow" && n <= 2 {
				<-time.After(attempt * 11 / 5) // it heeds no context: of three attempts' time this leaves less than one
				return fault.Transient(errors.New("slow, and in vain"))
			}
			return effect(ctx, tx, "slowly", e.Data)
		},
		Options: Options{
			Attempts: 3, AttemptTimeout: attempt, NormalTime: attempt,
			BackoffBase: time.Millisecond, BackoffCap: time.Millisecond,
		},
	}
}

// A record whose slow failures used up its budget was dead with attempts left.
func TestNormalTime_SlowFailuresLeaveARecordItsAttempts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change       func(o *Options)
		held, parked bool
		dead         int
		tries        int // of what fails always: it parks after one, twice, and is held in its last round
	}{
		"Held":       {func(*Options) {}, true, false, 1, 3},
		"Parked":     {func(o *Options) { o.Park = &parking.Policy{Base: time.Millisecond, Cap: time.Millisecond, Rounds: 2} }, true, true, 1, 5},
		"WithoutOne": {func(o *Options) { o.NormalTime = 0 }, false, false, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, tries := newBed(t), map[string]int{}
			route := slowly(tries)
			tc.change(&route.Options)
			cfg := b.config()
			held := make(chan record.HoldInfo, 100)
			cfg.Hooks.OnHold = func(i record.HoldInfo) {
				if i.Dependency == middleware.NoBudget {
					held <- i
				}
			}
			slow, never := items("slow", 1), items("never", 1)
			behind := of(item{ID: "behind", Kind: "ok"})
			behind.Key = slow[0].Key
			b.produce(append(append(append(slow, never...), behind), items("ok", 20)...)...)
			r := b.start(cfg, route)
			final := map[record.Outcome]int{}
			for final[record.Effected]+final[record.Dead] < 23 {
				for o, n := range b.outcomes(1) {
					final[o] += n
				}
			}
			r.stop()

			require.Equal(t, tc.dead, final[record.Dead])
			require.EqualValues(t, tc.dead, b.length("orders.dlq"))
			effects := b.effects("slowly")
			require.Len(t, effects, 23-tc.dead, "each once")
			if tc.dead == 1 {
				require.Subset(t, effects, []string{"slow-0", "behind"})
				require.Less(t, slices.Index(effects, "slow-0"), slices.Index(effects, "behind"), "in the order of their key")
			}
			require.Zero(t, b.behind())
			require.Equal(t, tc.tries, tries["never-0"])
			require.Equal(t, tc.held, len(held) > 0)
			require.Equal(t, tc.parked, final[record.Parked] > 0)
			var rows, parked int
			require.NoError(t, b.pool.QueryRow(t.Context(),
				`select (select count(*) from headrace.inbox), (select count(*) from headrace.parked_records)`).Scan(&rows, &parked))
			require.Equal(t, 23, rows, "the ledger")
			require.Zero(t, parked)
		})
	}
}

// A consumer that stops while a record waits for its budget gives it back, and another one goes on.
func TestNormalTime_AStopWhileABudgetIsWaitedFor(t *testing.T) {
	t.Parallel()
	b, tries := newBed(t), map[string]int{}
	route := slowly(tries)
	route.BackoffBase, route.BackoffCap = 100*time.Millisecond, 100*time.Millisecond
	cfg := b.config()
	held := make(chan struct{}, 100)
	cfg.Hooks.OnHold = func(i record.HoldInfo) {
		if i.Dependency == middleware.NoBudget && i.Began {
			held <- struct{}{}
		}
	}
	b.produce(items("slow", 1)...)
	first := b.start(cfg, route)
	<-held
	first.stop()
	second := b.start(b.config(), route)
	require.Equal(t, map[record.Outcome]int{record.Effected: 1}, b.outcomes(1))
	second.stop()
	require.Equal(t, []string{"slow-0"}, b.effects("slowly"))
	require.Zero(t, b.behind())
	require.Zero(t, b.length("orders.dlq"))
}

package idempotency_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/idempotency"
)

// StormEnv makes TestStorm last about so many seconds, and StormSeedEnv repeats one.
const (
	StormEnv     = "HEADRACE_IDEMPOTENCY_STORM"
	StormSeedEnv = "HEADRACE_IDEMPOTENCY_SEED"
)

// harm is what a storm may not do. All are counts of keys.
type harm struct {
	twice   int // more than one effect
	lost    int // answered that it was done, and it was not, or the reverse
	changed int // answered in two ways
	leaked  int // somebody else's answer
	left    int // not done in the end, however often it was asked for
}

// audit looks at what is durable, and at what was answered, when every key was asked for until it was done.
func (w *stormWorld) audit(t *testing.T) (h harm) {
	t.Helper()
	for _, id := range w.ids() {
		effects := w.bank.paid(id)
		if id.route == "charge" {
			require.NoError(t, w.pool.QueryRow(t.Context(),
				"select count(*) from charges where tenant = $1 and key = $2", id.tenant, id.key).Scan(&effects))
		}
		answers := w.answered(id)
		h.twice += least(effects > 1)
		h.left += least(len(answers) == 0)
		for answer := range answers {
			h.lost += least((effects == 0) != strings.HasSuffix(answer, refused))
		}
		h.changed += least(len(answers) > 1)
		h.leaked += least(w.foreign(id))
	}
	return h
}

func least(is bool) int {
	if is {
		return 1
	}
	return 0
}

func seed(t *testing.T) uint64 {
	t.Helper()
	if s := os.Getenv(StormSeedEnv); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, StormSeedEnv)
		return n
	}
	return uint64(time.Now().UnixNano())
}

var (
	bothRoutes = []string{"charge", "pay"}
	onlyTx     = []string{"charge"}
	onlyPay    = []string{"pay"}
)

// TestStorm is the promise under everything that goes wrong at once: each key has its effect once, and one answer.
func TestStorm(t *testing.T) {
	s := storm{seed: seed(t), routes: bothRoutes, keys: 50, rough: 0.15, timeout: 200 * time.Millisecond, most: 20 * time.Second}
	if env := os.Getenv(StormEnv); env != "" {
		secs, err := strconv.Atoi(env)
		require.NoError(t, err, StormEnv)
		s.most, s.keys = 4*time.Duration(secs)*time.Second, 20*secs
	}
	w := newStormWorld(t, s)
	w.run()
	t.Logf("seed %d: %v; %d backends killed, %d resolved by hand", s.seed, w.outcomes(), w.killed.Load(), w.resolved.Load())
	require.Equal(t, harm{}, w.audit(t), "%s=%d", StormSeedEnv, s.seed)
	for _, o := range idempotency.Outcomes {
		if o != idempotency.Refused { // nothing was asked for
			require.Positive(t, w.outcomes()[o], o)
		}
	}
}

// TestStormCatches shows that the audit finds what it is for: each of these is a storm on an engine with one guard less.
// The guards of finish and of an operator's decision have tests of their own: a storm seldom needs them.
func TestStormCatches(t *testing.T) {
	for _, mutant := range []struct {
		name   string
		routes []string
		change func(*idempotency.Keys)
		caught func(harm) bool
	}{
		{
			"AnAnswerThatIsStoredWithoutItsEffect", onlyTx,
			func(k *idempotency.Keys) {
				k.Break("insert", "where current_setting('headrace.idempotency', true) = $10::text", "where $10::text is not null")
			},
			func(h harm) bool { return h.lost > 0 },
		},
		{
			"AnAnswerForWhoeverHasTheKey", bothRoutes,
			func(k *idempotency.Keys) { k.Break("look", " and principal = $3::text", " and $3::text is not null") },
			func(h harm) bool { return h.leaked > 0 },
		},
		{
			"ALeaseThatEnds", onlyPay,
			func(k *idempotency.Keys) {
				k.Break("claim", "on conflict do nothing", "on conflict (route, method, principal, key) do update set token = excluded.token, "+
					"deadline = excluded.deadline where idempotency.status is null and idempotency.deadline <= statement_timestamp()")
			},
			func(h harm) bool { return h.twice > 0 },
		},
		{
			"AKeyThatIsUnknownWhileItsHandlerMayRun", onlyPay,
			func(k *idempotency.Keys) {
				for _, statement := range []string{"claim", "retry"} {
					k.Break(statement, "interval '200 ms'", "interval '2 ms'")
				}
			},
			func(h harm) bool { return h.twice > 0 },
		},
		{
			"AFreeOfAnothersRun", onlyPay,
			func(k *idempotency.Keys) { k.Break("free", " and token = $5::uuid", " and $5::uuid is not null") },
			func(h harm) bool { return h.twice > 0 },
		},
		{
			"ARetryOfAnothersRun", onlyPay,
			func(k *idempotency.Keys) { k.Break("retry", " and token = $5::uuid", " and $5::uuid is not null") },
			func(h harm) bool { return h.twice > 0 },
		},
		{
			"ASweepThatForgetsTooSoon", bothRoutes,
			func(k *idempotency.Keys) { k.Break("sweep", "- $1::interval", "+ $1::interval") },
			func(h harm) bool { return h.twice > 0 },
		},
	} {
		t.Run(mutant.name, func(t *testing.T) {
			const tries = 30
			for i := range tries {
				caught := false
				t.Run(fmt.Sprint(i+1), func(t *testing.T) {
					w := newStormWorld(t, storm{
						seed: seed(t) + uint64(i), routes: mutant.routes, keys: 24, rough: 0.3, timeout: 100 * time.Millisecond,
						most: time.Second, mutate: mutant.change,
					})
					w.run()
					h := w.audit(t)
					caught = mutant.caught(h)
					t.Logf("%+v; %v", h, w.outcomes())
				})
				if caught {
					return
				}
			}
			t.Fatalf("%d storms, and nobody noticed", tries)
		})
	}
}

package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/payments"
	"github.com/headrace/headrace/record"
)

func TestMill(t *testing.T) {
	t.Parallel()

	t.Run("MakesTheSameOrdersFromTheSameSeed", func(t *testing.T) {
		t.Parallel()
		a, b, other := newMill(7), newMill(7), newMill(8)
		differ := 0
		for range 2000 {
			w := a.next()
			require.Equal(t, w, b.next())
			if w.id != other.next().id {
				differ++
			}
		}
		require.Greater(t, differ, 1900)
	})

	t.Run("MakesEveryKindOfTrouble", func(t *testing.T) {
		t.Parallel()
		m := newMill(1)
		kinds, seen := map[kind]int{}, map[string]string{}
		for range 20_000 {
			w := m.next()
			var o order
			before, again := seen[w.id]
			switch {
			case again && before == string(w.value):
				kinds["duplicate"]++
			case again:
				kinds["conflict"]++
			case json.Unmarshal(w.value, &o) != nil:
				kinds[garbled]++
			default:
				kinds[o.Kind]++
			}
			if !again {
				seen[w.id] = string(w.value)
			}
		}
		for _, m := range mix {
			require.Positive(t, kinds[m.kind], m.kind)
		}
		require.Positive(t, kinds["duplicate"])
		require.Positive(t, kinds["conflict"])
		require.Greater(t, kinds[sound], 18_000)
	})

	t.Run("SendsNothingTwiceToAStoreThatKnowsNoIdentities", func(t *testing.T) {
		t.Parallel()
		m, seen := newMill(1), map[string]bool{}
		m.once = true
		for range 20_000 {
			w := m.next()
			require.False(t, seen[w.id], w.id)
			seen[w.id] = true
		}
	})

	t.Run("NeverContradictsWhatIsGarbled", func(t *testing.T) {
		t.Parallel()
		// Such a record would be undecodable and a conflict, and both reasons right.
		m := newMill(3)
		seen := map[string]string{}
		for range 50_000 {
			w := m.next()
			if first, again := seen[w.id]; again && first != string(w.value) {
				require.True(t, json.Valid([]byte(first)))
			} else {
				seen[w.id] = string(w.value)
			}
		}
	})
}

func TestFaults(t *testing.T) {
	t.Parallel()

	t.Run("EveryKindHasAFate", func(t *testing.T) {
		t.Parallel()
		for _, m := range mix {
			require.NotEqual(t, record.Unsettled, fateOf(m.kind).outcome, m.kind)
		}
		require.Equal(t, sound, pick(999))
		require.Equal(t, flaky, pick(0))
	})

	t.Run("AreOfTheSeedAndTheOrderAlone", func(t *testing.T) {
		t.Parallel()
		// Another process, at another time, with the orders the other way round.
		m, differ := newMill(7), 0
		kinds := map[string]kind{}
		for range 2000 {
			w := m.next()
			kinds[w.id] = kindOf(7, w.id)
		}
		for id, k := range kinds {
			require.Equal(t, k, kindOf(7, id))
			if k != kindOf(8, id) {
				differ++
			}
		}
		require.Positive(t, differ)
	})

	t.Run("ComeAsOftenAsTheMixSays", func(t *testing.T) {
		t.Parallel()
		const orders = 100_000
		m, got := newMill(9), map[kind]int{}
		for range orders {
			got[kindOf(9, m.id())]++
		}
		for _, want := range mix {
			require.InEpsilon(t, want.of*orders/1000, got[want.kind], 0.4, want.kind)
		}
	})

	t.Run("ThatChargeNothingEndWithoutAnEffect", func(t *testing.T) {
		t.Parallel()
		for _, m := range mix {
			if paymentFault(m.kind) == payments.Unpaid {
				require.Equal(t, record.Dead, fateOf(m.kind).outcome)
			} else if paymentFault(m.kind) != payments.None {
				require.Equal(t, record.Effected, fateOf(m.kind).outcome, m.kind)
			}
		}
	})
}

func TestParse(t *testing.T) {
	t.Parallel()

	t.Run("NeedsNothing", func(t *testing.T) {
		t.Parallel()
		s, err := parse(nil, io.Discard)
		require.NoError(t, err)
		require.Equal(t, 20_000, s.records)
		require.Equal(t, "orders", s.topic)
		require.Equal(t, "billing", s.group)
	})

	t.Run("TakesOneDashOrTwo", func(t *testing.T) {
		t.Parallel()
		s, err := parse([]string{"--json", "-seed", "7", "--transport", "watermill-kafka"}, io.Discard)
		require.NoError(t, err)
		require.True(t, s.json)
		require.Equal(t, uint64(7), s.seed)
		require.Equal(t, watermillKafka, s.transport)
	})

	t.Run("TellsAWrongFlagOnceAndNotAllOthers", func(t *testing.T) {
		t.Parallel()
		for _, args := range [][]string{{"-seed", "x"}, {"-fast"}, {"orders"}} {
			var errs strings.Builder
			require.Equal(t, 2, code(args, &errs))
			require.Equal(t, 2, strings.Count(errs.String(), "\n"), errs.String())
			require.Contains(t, errs.String(), "\n  fix: 'demo-consumer -help' says what each flag takes\n")
		}
	})

	t.Run("ExplainsItself", func(t *testing.T) {
		t.Parallel()
		var usage strings.Builder
		_, err := parse([]string{"--help"}, &usage)
		require.ErrorIs(t, err, flag.ErrHelp)
		for _, told := range []string{
			"--brokers localhost:9092", "postgres://headrace:headrace@localhost:5432/headrace?sslmode=disable",
			"-transport", "-store", "-stay", "-payments-outage", "double_charges",
		} {
			require.Contains(t, usage.String(), told)
		}
	})

	t.Run("GivesARunOnSomebodysKafkaNamesOfItsOwn", func(t *testing.T) {
		t.Parallel()
		s := settings{brokers: []string{"kafka:9092"}}.named(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
		require.Equal(t, "orders-20260102-030405", s.topic)
		require.Equal(t, "billing-20260102-030405", s.group)
	})

	t.Run("KeepsTheNamesOfAPart", func(t *testing.T) {
		t.Parallel()
		s, err := parse([]string{"-consume-only", "-brokers", "a:1,b:2", "-dsn", "postgres://x"}, io.Discard)
		require.NoError(t, err)
		require.Equal(t, []string{"a:1", "b:2"}, s.brokers)
		require.Equal(t, "orders", s.topic)
	})

	for name, args := range map[string][]string{
		"AnArgument":        {"orders"},
		"NoRecords":         {"-records", "0"},
		"NoPartitions":      {"-partitions", "0"},
		"APartAlone":        {"-consume-only"},
		"AnUnknownFlag":     {"-fast"},
		"ANegativeDuration": {"-outage", "-1s"},
		"AnotherTransport":  {"-transport", "sarama"},
		"AnotherStore":      {"-store", "redis"},
		"AnAuditThatStays":  {"-audit-only", "-stay", "-brokers", "a:1", "-dsn", "postgres://x"},
	} {
		t.Run("Refuses"+name, func(t *testing.T) {
			t.Parallel()
			_, err := parse(args, io.Discard)
			require.Error(t, err)
		})
	}
}

// A server that could not be reached was a stack of dial errors, and no word of what to do.
func TestCode_AServerThatCannotBeReachedHasAFix(t *testing.T) {
	t.Parallel()
	var errs strings.Builder
	require.Equal(t, 1, code([]string{"-audit-only", "-brokers", "127.0.0.1:1", "-dsn", "postgres://x@127.0.0.1:1/x"}, &errs))
	require.Contains(t, errs.String(), "\n  fix: see that Postgres is up, and check -dsn\n")
	require.Equal(t, "\n  fix: see that the brokers are up, and check -brokers", fix(fmt.Errorf("topics: %w", &net.OpError{Op: "dial"}), settings{brokers: []string{"a:1"}}))
	require.Equal(t, "\n  fix: what is built in has ended, or a port of this machine was taken: run it again", fix(&net.OpError{Op: "dial"}, settings{}))
	require.Empty(t, fix(errors.New("the ledger does not balance"), settings{}))
}

func TestReport_OfACountAloneHasNoFiguresOfARun(t *testing.T) {
	t.Parallel()
	text := func(r report) string {
		var out strings.Builder
		require.NoError(t, r.print(&out, false))
		return out.String()
	}
	require.NotContains(t, text(report{}), "records/s")
	require.Contains(t, text(report{Seconds: 12.5, Rate: 1600, Holds: 3}), "\n12.5 s, 1600 records/s, 0 rebalances, 3 holds, breaker opened 0 times\n")
}

func TestTally(t *testing.T) {
	t.Parallel()

	t.Run("CountsARebalanceForEachDirectionInWhichPartitionsMove", func(t *testing.T) {
		t.Parallel()
		tl := newTally()
		assign := func(member string, partitions ...int32) {
			for _, p := range partitions {
				tl.hooks(member).OnClaim(record.ClaimInfo{Partition: p, Event: "assigned"})
			}
		}
		assign("first", 0, 1, 2, 3)
		require.Zero(t, tl.snapshot().moves, "nobody had them before")
		assign("second", 2, 3)
		require.Equal(t, 1, tl.snapshot().moves)
		assign("first", 3, 2)
		require.Equal(t, 2, tl.snapshot().moves)
		assign("first", 0)
		require.Equal(t, 2, tl.snapshot().moves, "it had it")
	})

	t.Run("CountsATripOnceHoweverManyProbesFail", func(t *testing.T) {
		t.Parallel()
		tl := newTally()
		for _, step := range [][2]string{
			{record.BreakerClosed, record.BreakerOpen},
			{record.BreakerOpen, record.BreakerHalfOpen},
			{record.BreakerHalfOpen, record.BreakerOpen},
			{record.BreakerOpen, record.BreakerHalfOpen},
		} {
			tl.breaker(record.BreakerInfo{From: step[0], To: step[1]})
		}
		require.Equal(t, 1, tl.snapshot().trips)
		require.Equal(t, record.BreakerHalfOpen, tl.snapshot().payments)
	})

	t.Run("ShowsARecordOnceHoweverOftenItIsDelivered", func(t *testing.T) {
		t.Parallel()
		tl := newTally()
		var line strings.Builder
		p := newProgress(&line, tl, func() int64 { return 17 })
		for _, member := range []string{"first", "second"} {
			tl.hooks(member).OnSettle(record.SettleInfo{Topic: "orders", Offset: 1, Outcome: record.Effected})
		}
		tl.hooks("second").OnSettle(record.SettleInfo{Topic: "orders", Offset: 2, Outcome: record.Dead})
		tl.breaker(record.BreakerInfo{From: record.BreakerOpen, To: record.BreakerHalfOpen})
		p.draw()
		require.Regexp(t, `^ +2 settled +\d+/s  uncommitted +17  effected 1 dead 1  redelivered 1  breaker half open\n$`, line.String())
	})

	t.Run("MovesWhatWasParkedToItsEnd", func(t *testing.T) {
		t.Parallel()
		tally := newTally()
		for _, o := range []record.Outcome{record.Parked, record.Parked, record.Effected, record.Effected} {
			tally.settle(record.SettleInfo{Topic: "orders", Offset: 7, Outcome: o})
		}
		s := tally.snapshot()
		require.Equal(t, []int{1, 0, 1}, []int{s.outcomes[record.Effected], s.outcomes[record.Parked], s.total})
		require.Equal(t, []int{1, 1}, []int{s.parked, s.again}, "parked once, and delivered once more in the end")
	})

	t.Run("KnowsWhatHoldsNow", func(t *testing.T) {
		t.Parallel()
		tl := newTally()
		h := tl.hooks("first")
		h.OnHold(record.HoldInfo{Began: true})
		h.OnHold(record.HoldInfo{Began: true})
		h.OnHold(record.HoldInfo{})
		require.Equal(t, 1, tl.snapshot().holding)
		require.Equal(t, 2, tl.snapshot().held)
	})
}

package main

import (
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
		for _, k := range []kind{sound, flaky, stubborn, refused, cursed, cancelled, garbled, "duplicate", "conflict"} {
			require.Positive(t, kinds[k], k)
		}
		require.Greater(t, kinds[sound], 18_000)
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

func TestFates(t *testing.T) {
	t.Parallel()
	for _, m := range mix {
		require.NotEqual(t, record.Unsettled, fateOf(m.kind).outcome, m.kind)
	}
	require.Equal(t, sound, pick(999))
	require.Equal(t, flaky, pick(0))
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
	} {
		t.Run("Refuses"+name, func(t *testing.T) {
			t.Parallel()
			_, err := parse(args, io.Discard)
			require.Error(t, err)
		})
	}
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

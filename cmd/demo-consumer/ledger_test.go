package main

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/payments"
	"github.com/headrace/headrace/record"
)

// book builds facts record by record, each with the outcome that it should have.
type book struct {
	f      *facts
	offset int64
}

func newBook() *book {
	return &book{f: &facts{
		rows: map[uuid.UUID]row{}, letters: map[place][]dlq.Reason{},
		postings: map[string]posting{}, balances: map[int]int64{}, charges: map[string][]payments.Charge{},
		events: map[uuid.UUID]int{}, notices: map[uuid.UUID]notice{}, parked: map[uuid.UUID]bool{},
	}}
}

func (b *book) input(id string, k kind, hash int64) input {
	b.offset++
	in := input{
		place:   place{0, b.offset},
		byPlace: uuid.NewSHA1(uuid.NameSpaceOID, []byte{byte(b.offset)}),
		anew:    uuid.NewSHA1(uuid.NameSpaceDNS, []byte{byte(b.offset)}),
		order:   order{ID: id, Account: 7, Amount: 10, Kind: k},
		identity: record.Identity{
			ID: id, Key: uuid.NewSHA1(uuid.NameSpaceURL, []byte(id)), ValueHash: hash, Coordinates: b.offset,
		},
	}
	b.f.inputs = append(b.f.inputs, in)
	return in
}

// settle writes the row of a record that is the first of its identity.
func (b *book) settle(in input, o record.Outcome) {
	b.f.rows[in.identity.Key] = row{outcome: o, hash: in.identity.ValueHash, coordinates: in.identity.Coordinates}
}

func (b *book) charge(id string) uuid.UUID {
	c := payments.Charge{ID: uuid.New(), Request: payments.Request{Order: id, Account: 7, Amount: 10}}
	b.f.charges[id] = append(b.f.charges[id], c)
	return c.ID
}

// tell gives a charge that is posted its event and its notice.
func (b *book) tell(id string, charge uuid.UUID) uuid.UUID {
	b.f.events[charge]++
	b.f.notices[charge] = notice{times: 1, order: id, account: 7, large: true, language: languageOf(7)}
	return charge
}

func (b *book) effect(id string) input {
	in := b.input(id, sound, 1)
	b.settle(in, record.Effected)
	b.post(id)
	return in
}

func (b *book) post(id string) {
	b.f.postings[id] = posting{times: 1, seq: b.offset, account: 7, amount: 10, charges: []uuid.UUID{b.tell(id, b.charge(id))}}
	b.f.balances[7] += 10
}

// replay gives a dead record the effect that its replay has, later than those before it.
func (b *book) replay(in input) {
	r := b.f.rows[in.identity.Key]
	r.outcome, r.replayed = record.Effected, true
	b.f.rows[in.identity.Key] = r
	b.post(in.order.ID)
}

// conflict is a record that contradicts an earlier one, and died of it.
func (b *book) conflict(id string, k kind) input {
	in := b.input(id, k, 2)
	b.f.rows[in.byPlace] = row{outcome: record.Dead, hash: 2, coordinates: in.identity.Coordinates}
	b.f.letters[in.place] = []dlq.Reason{dlq.IDConflict}
	return in
}

// anew gives a contradicting record what its replay with a new id comes to.
func (b *book) anew(in input, o record.Outcome) {
	b.f.rows[in.anew] = row{outcome: o, hash: in.identity.ValueHash}
	b.f.rows[in.byPlace] = row{outcome: record.Duplicate, hash: 2, coordinates: in.identity.Coordinates}
	if o != record.Effected {
		return
	}
	p := b.f.postings[in.order.ID]
	p.times, p.account, p.amount = p.times+1, 7, p.amount+10
	p.charges = append(p.charges, b.tell(in.order.ID, b.charge(in.order.ID)))
	if p.times == 1 {
		p.seq = b.offset
	}
	b.f.postings[in.order.ID] = p
	b.f.balances[7] += 10
}

func (b *book) bury(id string, k kind, reason dlq.Reason) input {
	in := b.input(id, k, 1)
	b.settle(in, record.Dead)
	b.f.letters[in.place] = []dlq.Reason{reason}
	return in
}

// sample has a record of every fate.
func sample() *book {
	b := newBook()
	b.effect("a")
	b.input("a", sound, 1) // a duplicate
	b.conflict("a", sound)
	b.bury("c", cursed, dlq.Panic)
	b.bury("d", stubborn, dlq.Exhausted)
	b.charge("d")
	b.settle(b.input("e", cancelled, 1), record.Skipped)
	b.effect("f")
	b.bury("g", unpaid, dlq.Permanent)
	b.replay(b.bury("h", unpaid, dlq.Permanent))
	return b
}

// sampleByOffset has a record of every fate that it meets with the offset store: only what died has a row, under its place.
func sampleByOffset() *book {
	b := newBook()
	bury := func(id string, k kind, reason dlq.Reason) input {
		in := b.input(id, k, 1)
		b.f.rows[in.byPlace] = row{outcome: record.Dead, coordinates: in.identity.Coordinates}
		b.f.letters[in.place] = []dlq.Reason{reason}
		return in
	}
	b.input("a", sound, 1)
	b.post("a")
	bury("c", cursed, dlq.Panic)
	b.input("e", cancelled, 1)
	bury("g", unpaid, dlq.Permanent)
	risen := bury("h", unpaid, dlq.Permanent)
	b.f.rows[risen.byPlace] = row{outcome: record.Effected, replayed: true}
	b.post("h")
	b.input("f", sound, 1)
	b.post("f")
	b.f.done = map[int32]int64{0: b.offset + 1}
	return b
}

// spoil changes a posting.
func (b *book) spoil(id string, change func(*posting)) {
	p := b.f.postings[id]
	change(&p)
	b.f.postings[id] = p
}

func TestLedger(t *testing.T) {
	t.Parallel()

	t.Run("BalancesWhereEveryRecordMetItsFate", func(t *testing.T) {
		t.Parallel()
		r := sample().f.count()
		require.Empty(t, r.Problems)
		require.True(t, r.Balanced)
		require.Equal(t, 9, r.Records)
		require.Equal(t, []int{3, 1, 1, 4, 0}, []int{r.Effected, r.Duplicate, r.Skipped, r.Dead, r.Parked})
		require.Equal(t, map[string]int{"id_conflict": 1, "panic": 1, "exhausted": 1, "permanent": 1}, r.DeadByReason)
		require.Equal(t, []int{4, 1, 0, 1}, []int{r.Charges, r.ChargedInVain, r.DoubleCharges, r.Replayed})
	})

	// 19 orders were charged twice after a replay with --new-id, which somebody had asked for: NOT BALANCED.
	t.Run("CountsAReplayWithANewIDAsWhatItIs", func(t *testing.T) {
		t.Parallel()
		b := newBook()
		b.effect("a")
		again, twice := b.conflict("a", sound), b.conflict("a", sound)
		b.settle(b.input("b", cancelled, 1), record.Skipped)
		skipped := b.conflict("b", cancelled)
		b.bury("c", unpaid, dlq.Permanent)
		alone := b.conflict("c", unpaid)
		b.bury("d", stubborn, dlq.Exhausted)
		b.charge("d")
		inVain := b.conflict("d", stubborn)
		b.effect("e")
		b.conflict("e", sound) // nobody replays it
		for _, in := range []input{again, twice, alone} {
			b.anew(in, record.Effected)
		}
		b.anew(skipped, record.Skipped)
		b.anew(inVain, record.Dead)
		b.charge("d")

		r := b.f.count()
		require.Empty(t, r.Problems)
		require.True(t, r.Balanced)
		require.Equal(t, []int{5, 0, 2, 4, 0}, []int{r.Effected, r.Duplicate, r.Skipped, r.Dead, r.Parked})
		require.Equal(t, map[string]int{"permanent": 1, "exhausted": 1, "id_conflict": 2}, r.DeadByReason)
		require.Equal(t, []int{7, 0, 2, 4, 0}, []int{r.Charges, r.DoubleCharges, r.ChargedAnew, r.NewIDs, r.Replayed})
		require.Contains(t, r.verdict(), "and once more for each of the 4 that --new-id let run")

		b.charge("a")
		b.charge("e")
		r = b.f.count()
		require.Equal(t, 2, r.DoubleCharges, "one more than anybody asked for")
		require.Contains(t, r.verdict(), "order a was charged 4 times")
		require.Contains(t, r.verdict(), "order e was charged 2 times")
	})

	t.Run("CountsWithoutRowsWhatTheOffsetStoreHasDone", func(t *testing.T) {
		t.Parallel()
		r := sampleByOffset().f.count()
		require.Empty(t, r.Problems)
		require.True(t, r.Balanced)
		require.Equal(t, []int{3, 0, 1, 2, 0}, []int{r.Effected, r.Duplicate, r.Skipped, r.Dead, r.Parked})
		require.Equal(t, map[string]int{"panic": 1, "permanent": 1}, r.DeadByReason)
		require.Equal(t, 1, r.Replayed)
	})

	for name, tc := range map[string]struct {
		spoil func(*book)
		want  string
	}{
		"SeesARecordThatIsNotDone": {
			func(b *book) { b.f.done[0] = 6 }, "record 0/6 (order f) has no outcome",
		},
		"SeesADoneRecordWithoutItsEffect": {
			func(b *book) { delete(b.f.postings, "a") }, "record 0/1 (order a, sound) is skipped and should be effected",
		},
		"SeesAProducersDuplicate": {
			func(b *book) {
				b.input("a", sound, 1)
				b.spoil("a", func(p *posting) { p.times = 2 })
				b.f.done[0]++
			}, "record 0/7 (order a, sound) is effected and should be duplicate",
		},
		"SeesADeadRecordWithoutARow": {
			func(b *book) { delete(b.f.rows, b.f.inputs[1].byPlace) }, "record 0/2 (order c, cursed) is skipped and should be dead",
		},
		"SeesAnEffectThatHappenedTwice": {
			func(b *book) { b.spoil("a", func(p *posting) { p.times = 2 }) }, "order a was posted 2 times",
		},
	} {
		t.Run("ByOffset/"+name, func(t *testing.T) {
			t.Parallel()
			b := sampleByOffset()
			tc.spoil(b)
			r := b.f.count()
			require.False(t, r.Balanced)
			require.Contains(t, r.verdict(), tc.want)
		})
	}

	t.Run("CountsWhatIsParkedUntilItHasAnotherEnd", func(t *testing.T) {
		t.Parallel()
		b := sample()
		in := b.input("i", sound, 1)
		b.f.parked[in.identity.Key] = true
		r := b.f.count()
		require.Empty(t, r.Problems)
		require.Equal(t, []int{10, 3, 1}, []int{r.Records, r.Effected, r.Parked})
	})

	t.Run("CountsWhatWasParkedByItsEnd", func(t *testing.T) {
		t.Parallel()
		b := sample()
		in := b.effect("i")
		b.f.parked[in.identity.Key] = true // its row is not deleted yet
		r := b.f.count()
		require.Empty(t, r.Problems)
		require.Equal(t, []int{10, 4, 0}, []int{r.Records, r.Effected, r.Parked})
	})

	for name, tc := range map[string]struct {
		spoil func(*book)
		want  string
	}{
		"SeesALostRecord": {
			func(b *book) { b.input("lost", sound, 1) }, "record 0/10 (order lost) has no outcome",
		},
		"SeesAnEffectThatHappenedTwice": {
			func(b *book) { b.spoil("a", func(p *posting) { p.times = 2 }) }, "order a was posted 2 times",
		},
		"SeesAnInboxRowWithoutItsEffect": {
			func(b *book) { delete(b.f.postings, "f") }, "order f was posted 0 times",
		},
		"SeesAnEffectWithoutARecord": {
			func(b *book) { b.f.postings["x"] = posting{times: 1} }, "4 orders were posted and 3 are effected",
		},
		"SeesAWrongBalance": {
			func(b *book) { b.f.balances[7]++ }, "account 7 has 31 and its effected orders add up to 30",
		},
		"SeesAHealthyOrderThatDied": {
			func(b *book) { b.bury("healthy", sound, dlq.Exhausted) }, "is dead and should be effected",
		},
		"SeesADeadRecordWithoutALetter": {
			func(b *book) { delete(b.f.letters, place{0, 4}) }, "record 0/4 is dead, or was, and has no dead letter",
		},
		"SeesALetterOfALivingRecord": {
			func(b *book) { b.f.letters[place{0, 1}] = []dlq.Reason{dlq.Exhausted} },
			"record 0/1 is effected and has a dead letter, reason exhausted",
		},
		"SeesALetterOfNoRecord": {
			func(b *book) { b.f.letters[place{3, 1}] = []dlq.Reason{dlq.Exhausted} }, "a dead letter of 3/1, where no record is",
		},
		"SeesAWrongReason": {
			func(b *book) { b.f.letters[place{0, 4}] = []dlq.Reason{dlq.Permanent} }, "record 0/4 died of permanent",
		},
		"SeesPostingsOutOfOrder": {
			func(b *book) { b.spoil("f", func(p *posting) { p.seq = 0 }) },
			"order f was posted to account 7 before one that was produced earlier",
		},
		"SeesAnOrderThatAnOutageKilled": {
			func(b *book) { b.bury("i", lost, dlq.UnknownOutcome) }, "record 0/10 died of unknown_outcome",
		},
		"SeesTwoPostingsOfOneCharge": {
			func(b *book) {
				b.spoil("a", func(p *posting) { p.times, p.charges = 2, append(p.charges, p.charges[0]) })
			}, "order a was not charged, or posted twice",
		},
		"SeesAChargeWithoutAnEvent": {
			func(b *book) { delete(b.f.events, b.f.postings["a"].charges[0]) }, "of order a has 0 events and 1 notices",
		},
		"SeesANoticeThatWasWrittenTwice": {
			func(b *book) { b.f.notices[b.f.postings["a"].charges[0]] = notice{times: 2, order: "a"} },
			"of order a has 1 events and 2 notices",
		},
		"SeesANoticeOfAnotherOrder": {
			func(b *book) { b.f.notices[b.f.postings["a"].charges[0]] = notice{times: 1, order: "f"} },
			`is posted for order "a" and has a notice for "f"`,
		},
		"SeesAnEventOfAnEffectThatWasUndone": {
			func(b *book) { b.f.events[uuid.Max]++ }, "charge " + uuid.Max.String() + " has an event and no posting",
		},
		"SeesALanguageThatNobodySpeaks": {
			func(b *book) {
				b.f.notices[b.f.postings["a"].charges[0]] = notice{times: 1, order: "a", account: 7, large: true, language: "tlh"}
			},
			`account 7 has a notice in "tlh"`,
		},
		"SeesADoubleCharge":             {func(b *book) { b.charge("a") }, "order a was charged 2 times"},
		"SeesADoubleChargeOfADeadOrder": {func(b *book) { b.charge("d") }, "order d was charged 2 times"},
		"SeesAnEffectWithoutACharge": {
			func(b *book) { delete(b.f.charges, "f") }, "order f is effected 1 times and was charged 0 times",
		},
		"SeesAChargeOfAnotherAmount": {
			func(b *book) { b.f.charges["f"][0].Amount = 11 }, "order f was charged 11 of account 7",
		},
		"SeesAPostingOfAnotherCharge": {
			func(b *book) { b.spoil("f", func(p *posting) { p.charges[0] = uuid.Nil }) }, "as its posting says: " + uuid.Nil.String(),
		},
		"SeesAChargeOfASkippedOrder": {func(b *book) { b.charge("e") }, "order e (cancelled) is skipped and was charged"},
		"SeesAChargeWithoutAnOrder":  {func(b *book) { b.charge("x") }, "order x was charged, and is in no record"},
		"SeesAReplayThatWasNeverDead": {
			func(b *book) { delete(b.f.letters, place{0, 9}) }, "record 0/9 is dead, or was, and has no dead letter",
		},
		"SeesAReplayThatHadNoEffect": {
			func(b *book) { delete(b.f.postings, "h") }, "order h was posted 0 times",
		},
		"SeesAnEffectOfAFaultyOrderThatNobodyReplayed": {
			func(b *book) { b.settle(b.f.inputs[7], record.Effected) }, "record 0/8 (order g, unpaid) is effected and should be dead",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := sample()
			tc.spoil(b)
			r := b.f.count()
			require.False(t, r.Balanced)
			require.Contains(t, r.verdict(), tc.want)
		})
	}
}

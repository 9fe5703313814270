package dedup

import (
	"context"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

func (b *workbench) bury(r *record.Record, reason string) Answer {
	b.t.Helper()
	answer, err := b.rt.Bury(context.Background(), r, Grave{Reason: reason, Err: "it broke"})
	require.NoError(b.t, err)
	return answer
}

var replayTopicID = uuid.MustParse("0b7f5c53-7a57-4a4e-8c62-6c5e6c0c2a55")

// replay is r as it comes from the replay topic, at an offset of its own.
func replay(o *owner, r *record.Record, offset int64) *record.Record {
	again := &record.Record{
		Topic: "orders.billing.replay", TopicID: replayTopicID, Partition: 9, Offset: offset, Value: r.Value, Replay: true,
		Headers: r.Headers,
	}
	again.Bind(o, o.soft, r.Domain())
	of := ReplayOf{ID: r.Identity.ID, Key: r.Identity.Key, TopicID: r.TopicID, Partition: r.Partition, Offset: r.Offset}
	if err := IdentifyReplay(again, of, Header("id")); err != nil {
		panic(err)
	}
	return again
}

func TestBury(t *testing.T) {
	t.Parallel()
	eachStore(t, testBury)
}

func testBury(t *testing.T) {
	t.Parallel()

	t.Run("DeadIsNeverRunAndProducedAgain", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		r := rec(newOwner(), 1, "k")
		require.Equal(t, Buried, b.bury(r, "permanent"))
		require.Equal(t, record.Dead, Buried.Outcome())
		again, behind := rec(newOwner(), 1, "k"), rec(newOwner(), 2, "k")
		b.run([]*record.Record{again, behind}, effect)
		requireErr(t, ErrDead, again)
		requireErr(t, record.ErrNotRun, behind)
		require.Equal(t, DeadOwn, b.bury(again, "permanent"))
		b.requireLedger(0)
		require.Equal(t, "permanent", query[string](b, "select reason from headrace.inbox where state = 2"))
		require.Equal(t, "it broke", query[string](b, "select error from headrace.inbox where state = 2"))
	})

	t.Run("RedeliveredDeadRecordsSayWhyTheyDied", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		for offset, reason := range []string{"panic", "exhausted", "undecodable"} {
			g := Grave{Reason: reason, Err: "what it died of: " + reason}
			_, err := b.rt.Bury(context.Background(), rec(newOwner(), offset, ""), g)
			require.NoError(t, err)
		}
		o := newOwner()
		again := []*record.Record{rec(o, 0, ""), rec(o, 1, ""), rec(o, 2, ""), rec(o, 3, "")}
		b.run(again, effect)
		for i, reason := range []string{"panic", "exhausted", "undecodable"} {
			var dead *DeadError
			require.ErrorAs(t, again[i].Err, &dead)
			require.Equal(t, DeadError{Reason: reason, Text: "what it died of: " + reason}, *dead)
			requireErr(t, ErrDead, again[i])
			require.Equal(t, fault.ClassPermanent, new(fault.Classifier).Classify(t.Context(), again[i].Err).Class)
		}
		requireOutcomes(t, record.Effected, again[3])
		b.requireLedger(1)
	})

	runByID(t, "ProducersDuplicateOfADeadRecordIsADuplicate", "it knows no identities", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		b.bury(recAs(o, 1, "", "same", "v"), "permanent")
		twin := recAs(o, 2, "", "same", "v")
		b.run([]*record.Record{twin}, effect)
		requireOutcomes(t, record.Duplicate, twin)
		require.Equal(t, Duplicate, b.bury(recAs(o, 3, "", "same", "v"), "permanent"))
		b.requireLedger(0)
	})

	runByID(t, "EffectedAndSkippedGetNoDeadLetter", "of what is done it does not know how it ended", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		b.run([]*record.Record{rec(o, 1, "")}, effect)
		b.run([]*record.Record{rec(o, 2, "")}, skip)
		require.Equal(t, Own, b.bury(rec(o, 1, ""), "exhausted"))
		require.Equal(t, record.Effected, Own.Outcome())
		require.Equal(t, OwnSkipped, b.bury(rec(o, 2, ""), "exhausted"))
		require.Equal(t, record.Skipped, OwnSkipped.Outcome())
		b.requireLedger(1)
	})

	t.Run("ConflictGoesUnderItsCoordinates", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		b.run([]*record.Record{recAs(o, 1, "", "same", "v")}, effect)
		other := recAs(o, 2, "", "same", "w")
		require.Equal(t, Buried, b.bury(other, "permanent"), "found by the inbox itself")
		require.Equal(t, Buried, b.bury(recAs(o, 3, "", "same", "x"), "id_conflict"), "said by the caller")
		require.Equal(t, DeadOwn, b.bury(recAs(o, 2, "", "same", "w"), "id_conflict"))
		require.Equal(t, 2, query[int](b, "select count(*) from headrace.inbox where state = 2"))
		b.requireLedger(1)
	})

	t.Run("UnreadableIdentityGoesUnderItsCoordinates", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		r := &record.Record{Topic: "orders", TopicID: topicID, Offset: 5, Value: []byte("no JSON")}
		r.Bind(o, o.soft, "")
		require.Error(t, Identify(r, Field("id")))
		require.Equal(t, Buried, b.bury(r, "undecodable"))
		require.Equal(t, DeadOwn, b.bury(r, "undecodable"))
	})

	runByID(t, "ReplayTakesOverAndKeepsTheFirstCoordinates", "it knows no identities", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		dead := rec(o, 1, "")
		b.bury(dead, "permanent")
		again := replay(newOwner(), dead, 70)
		b.run([]*record.Record{rec(o, 2, ""), again, rec(o, 3, "")}, effect)
		requireOutcomes(t, record.Effected, again)
		require.Equal(t, dead.Identity.Coordinates, query[int64](b, "select original from headrace.inbox where original is not null"))
		require.Equal(t, again.Identity.Coordinates, query[int64](b, "select coordinates from headrace.inbox where original is not null"))
		b.requireLedger(3)

		twice := []*record.Record{replay(newOwner(), dead, 70), replay(newOwner(), dead, 71), rec(newOwner(), 1, "")}
		for _, r := range twice {
			b.run([]*record.Record{r}, effect)
		}
		requireOutcomes(t, record.Effected, twice[0], twice[2])
		requireOutcomes(t, record.Duplicate, twice[1])
		b.requireLedger(3)
	})

	t.Run("ReplayInCompanyLeavesNoRowForThoseBehindIt", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		dead := rec(newOwner(), 1, "a")
		b.bury(dead, "permanent")
		// In one group the replay waits to be alone and its follower with it: only the third runs and commits.
		rs := []*record.Record{replay(o, dead, 70), replay(o, rec(o, 71, "a"), 71), replay(o, rec(o, 72, "b"), 72)}
		b.run(rs, effect)
		requireOutcomes(t, record.Effected, rs...)
		b.requireLedger(3)
	})

	t.Run("ReplayThatFailsLeavesTheRowDeadAndIsDeadAgain", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		dead := rec(o, 1, "")
		b.bury(dead, "permanent")
		again := replay(newOwner(), dead, 70)
		b.run([]*record.Record{again, rec(o, 2, "")}, unless(70, failures["ErrorAfterSQL"]))
		requireErr(t, errBoom, again)
		require.Equal(t, 1, query[int](b, "select count(*) from headrace.inbox where state = 2"))
		require.Equal(t, Buried, b.bury(again, "exhausted"))
		require.Equal(t, DeadOwn, b.bury(replay(newOwner(), dead, 70), "exhausted"))
		require.Equal(t, DeadOwn, b.bury(dead, "permanent"), "the first record still is dead")
		last := replay(newOwner(), dead, 71)
		b.run([]*record.Record{last}, effect)
		requireOutcomes(t, record.Effected, last)
		b.requireLedger(2)
	})

	t.Run("ReplayOfARecordKnownByItsCoordinates", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		dead := recAs(o, 1, "", "", "v")
		require.True(t, dead.Identity.FromCoordinates)
		b.bury(dead, "permanent")
		again := replay(newOwner(), dead, 70)
		require.Equal(t, dead.Identity.ID, again.Identity.ID)
		b.run([]*record.Record{again}, effect)
		requireOutcomes(t, record.Effected, again)
		b.requireLedger(1)
	})

	t.Run("TwoReplaysAtOnceAreOneEffect", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		members := []*workbench{newBench(t, setup{dsn: dsn}), newBench(t, setup{dsn: dsn})}
		dead := rec(newOwner(), 1, "")
		members[0].bury(dead, "permanent")
		var wg sync.WaitGroup
		copies := make([]*record.Record, 4)
		for i := range copies {
			copies[i] = replay(newOwner(), dead, int64(70+i))
			wg.Go(func() { members[i%2].runUntilCharged(copies[i:i+1], Apply(effect)) })
		}
		wg.Wait()
		outcomes := map[record.Outcome]int{}
		for _, r := range copies {
			outcomes[r.Outcome()]++
		}
		require.Equal(t, map[record.Outcome]int{record.Effected: 1, record.Duplicate: 3}, outcomes)
		members[0].requireLedger(1)
	})

	t.Run("ManyAtOnceShareTransactions", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		const n = 2000
		before := query[int64](b, "select xact_commit from pg_stat_database where datname = current_database()")
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				answer, err := b.rt.Bury(context.Background(), rec(o, i, ""), Grave{Reason: "permanent"})
				if err != nil || answer != Buried {
					t.Errorf("%d: %v %v", i, answer, err)
				}
			})
		}
		finishes(t, wg.Wait)
		require.Equal(t, n, query[int](b, "select count(*) from headrace.inbox where state = 2"))
		after := query[int64](b, "select xact_commit from pg_stat_database where datname = current_database()")
		require.Less(t, after-before, int64(n/2))
	})

	runByID(t, "IdentityInOtherHandsIsBusyAndTheOthersAreBuried", "nobody has a place in hand", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		rs := recs(o, 10)
		b.rival(rs[3:4])
		var wg sync.WaitGroup
		errs := make([]error, len(rs))
		for i, r := range rs {
			wg.Go(func() { _, errs[i] = b.rt.Bury(context.Background(), r, Grave{Reason: "permanent"}) })
		}
		finishes(t, wg.Wait)
		for i, err := range errs {
			if i == 3 {
				require.Equal(t, fault.ClassBusy, (&fault.Classifier{}).Classify(context.Background(), err).Class)
				continue
			}
			require.NoError(t, err)
		}
	})

	t.Run("LostCommitIsAskedAgain", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		proxy := pgtest.NewProxy(t, dsn)
		b := newBench(t, setup{dsn: proxy.DSN(), look: dsn})
		met := proxy.Once(pgtest.Commit, pgtest.CutReply)
		require.Equal(t, DeadOwn, b.bury(rec(newOwner(), 1, ""), "permanent"))
		await(t, met)
	})

	t.Run("DatabaseAwayIsUnavailable", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		proxy := pgtest.NewProxy(t, dsn)
		b := newBench(t, setup{dsn: proxy.DSN(), look: dsn})
		proxy.Down()
		_, err := b.rt.Bury(context.Background(), rec(newOwner(), 1, ""), Grave{})
		require.Equal(t, fault.ClassUnavailable, (&fault.Classifier{}).Classify(context.Background(), err).Class)
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(record.ErrStopping)
		_, err = b.rt.Bury(ctx, rec(newOwner(), 1, ""), Grave{})
		require.Error(t, err)
	})

	t.Run("ErrorTextIsCutAtARune", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		text := "\x00\xff" + strings.Repeat("ü", 1<<20)
		_, err := b.rt.Bury(context.Background(), rec(newOwner(), 1, ""), Grave{Reason: "permanent", Err: text})
		require.NoError(t, err)
		stored := query[string](b, "select error from headrace.inbox")
		require.LessOrEqual(t, len(stored), maxErrText)
		require.True(t, utf8.ValidString(stored))
	})

	t.Run("AnswersOfTheStatementAreThoseOfTheCode", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"0", "1", "2", "3", "4", "5", "6", "9"}, []string{
			digit(Fresh), digit(Own), digit(OwnSkipped), digit(Duplicate), digit(IDConflict), digit(DeadOwn),
			digit(DeadReplay), digit(unseen),
		})
		require.Equal(t, "answer(9)", unseen.String())
		require.Len(t, Answers, int(unseen))
	})
}

func digit(a Answer) string { return string(rune('0' + a)) }

package dedup

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// identified is a replayed record and the identity that it is to have.
type identified struct {
	r    *record.Record
	of   ReplayOf
	id   string
	key  uuid.UUID
	from bool
}

// place is where it was first read, or its own place if nobody knows.
func (c identified) place(first spot) uuid.UUID {
	if c.of.TopicID == uuid.Nil {
		return placeOf(c.r).key
	}
	return first.place().key
}

func TestIdentifyReplay(t *testing.T) {
	t.Parallel()
	const id = "0198f3a2-5b1c-7def-8123-456789abcdef"
	first := spot{topicID, 3, 7}
	origin := ReplayOf{TopicID: topicID, Partition: 3, Offset: 7}
	known := func(key uuid.UUID, text string) ReplayOf {
		of := origin
		of.Key, of.ID = key, text
		return of
	}
	here := func(headers ...record.Header) *record.Record {
		return &record.Record{
			TopicID: replayTopicID, Partition: 1, Offset: 70, Value: []byte("v"), Replay: true, Headers: headers,
		}
	}
	named := record.Header{Key: "id", Value: []byte("of-a-header")}
	undecodable := func(of ReplayOf) ReplayOf {
		of.Undecodable = true
		return of
	}
	for name, c := range map[string]identified{
		"KeepsAUUID":                           {here(named), known(uuid.MustParse(id), ""), id, uuid.MustParse(id), false},
		"KeepsAText":                           {here(named), known(KeyOf("order-1"), "order-1"), "order-1", KeyOf("order-1"), false},
		"KeepsItsFirstCoordinates":             {here(), known(first.place().key, first.String()), first.String(), first.place().key, true},
		"UnreadableIsKnownByWhatCanBeReadNow":  {here(named), undecodable(known(first.place().key, first.String())), "of-a-header", KeyOf("of-a-header"), false},
		"UnreadableHasNoIdentityAfterAll":      {here(), undecodable(known(first.place().key, first.String())), first.String(), first.place().key, true},
		"UndecodableKeepsWhatWasRead":          {here(named), undecodable(known(KeyOf("order-1"), "order-1")), "order-1", KeyOf("order-1"), false},
		"PlaceOfOneThatRanIsItsIdentity":       {here(named), known(first.place().key, first.String()), first.String(), first.place().key, true},
		"NewIdIsAnotherRecord":                 {here(named), known(uuid.MustParse(id), "edited"), "edited", uuid.MustParse(id), false},
		"TextThatNoIdentityCanHave":            {here(), known(KeyOf("x"), strings.Repeat("x", maxID+1)), KeyOf("x").String(), KeyOf("x"), false},
		"ForeignLetterWithAnIdentity":          {here(named), origin, "of-a-header", KeyOf("of-a-header"), false},
		"ForeignLetterIsKnownByWhereItWas":     {here(), origin, first.String(), first.place().key, true},
		"ForeignLetterOfWhoKnowsWhereIsItself": {here(), ReplayOf{}, replayTopicID.String() + "/1/70", placeOf(here()).key, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, IdentifyReplay(c.r, c.of, Header("id")))
			require.Equal(t, record.Identity{
				ID: c.id, Key: c.key, FromCoordinates: c.from, Place: c.place(first),
				ValueHash: hashValue([]byte("v")), Coordinates: placeOf(here()).hash,
			}, c.r.Identity)
		})
	}

	t.Run("IdentityThatCannotBeReadIsKnownByWhereItWas", func(t *testing.T) {
		t.Parallel()
		r := here()
		require.ErrorIs(t, IdentifyReplay(r, origin, Field("id")), errIdentity)
		require.Equal(t, first.place().key, r.Identity.Key)
	})
}

// row is what stands in the inbox of the one record of a test.
type row struct {
	State                 int16
	Coordinates, Original int64
	Reason                string
}

func (b *workbench) row() (r row) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(context.Background(), `select state, coordinates, coalesce(original, 0),
		coalesce(reason, '') from headrace.inbox`).Scan(&r.State, &r.Coordinates, &r.Original, &r.Reason))
	return r
}

func TestReplay(t *testing.T) {
	t.Parallel()
	eachStore(t, testReplay)
}

func testReplay(t *testing.T) {
	t.Parallel()
	// dies is a record that is dead, and a replay of it.
	dies := func(t *testing.T, b *workbench) (dead, again *record.Record) {
		t.Helper()
		dead = rec(newOwner(), 1, "")
		require.Equal(t, Buried, b.bury(dead, "permanent"))
		return dead, replay(newOwner(), dead, 70)
	}
	never := func(context.Context, pgx.Tx, *record.Record) error { panic("it runs") }

	t.Run("RedeliveryOfTheFirstRecordWhileItsReplayRunsIsNotRun", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		b, other := newBench(t, setup{dsn: dsn}), newBench(t, setup{dsn: dsn})
		dead, again := dies(t, b)
		b.run([]*record.Record{again}, func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
			first := rec(newOwner(), 1, "")
			other.run([]*record.Record{first}, never)
			if storeOf(t) == ByID {
				requireClass(t, fault.ClassBusy, first)
			} else {
				require.ErrorIs(t, first.Err, ErrDead) // and there is no letter before Bury has answered
			}
			_, err := other.rt.Bury(ctx, dead, Grave{Reason: "permanent"})
			require.Equal(t, fault.ClassBusy, new(fault.Classifier).Classify(ctx, err).Class)
			for want, r := range map[Answer]*record.Record{DeadOwn: first, DeadReplay: replay(newOwner(), dead, 71)} {
				answers, err := other.rt.Look(ctx, []*record.Record{r})
				require.NoError(t, err)
				require.Equal(t, []Answer{want}, answers)
			}
			return effect(ctx, tx, r)
		})
		requireOutcomes(t, record.Effected, again)
		first := rec(newOwner(), 1, "")
		other.run([]*record.Record{first}, never)
		requireOutcomes(t, record.Effected, first)
		require.Equal(t, Own, other.bury(dead, "permanent"), "it gets no second letter")
		b.requireLedger(1)
	})

	t.Run("RedeliveryOfTheFirstRecordAfterItsReplayFailedIsStillDead", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		dead, again := dies(t, b)
		b.run([]*record.Record{again}, failures["ErrorAfterSQL"])
		requireErr(t, errBoom, again)
		require.Equal(t, row{2, dead.Identity.Coordinates, 0, "permanent"}, b.row(), "until its replay is buried")
		require.Equal(t, Buried, b.bury(again, "exhausted"))
		want := row{2, again.Identity.Coordinates, dead.Identity.Coordinates, "exhausted"}
		require.Equal(t, want, b.row())
		for _, r := range []*record.Record{rec(newOwner(), 1, ""), replay(newOwner(), dead, 70)} {
			b.run([]*record.Record{r}, never)
			requireErr(t, ErrDead, r)
			require.Equal(t, DeadOwn, b.bury(r, "exhausted"))
		}
		require.Equal(t, want, b.row())
		b.requireLedger(0)
	})

	t.Run("EachReplayThatFailsKeepsTheFirstCoordinates", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		dead, again := dies(t, b)
		for offset := range int64(3) {
			next := replay(newOwner(), dead, 80+offset)
			b.run([]*record.Record{next}, failures["ErrorAfterSQL"])
			require.Equal(t, Buried, b.bury(next, "exhausted"))
			require.Equal(t, row{2, next.Identity.Coordinates, dead.Identity.Coordinates, "exhausted"}, b.row())
		}
		b.run([]*record.Record{again}, effect)
		requireOutcomes(t, record.Effected, again)
		require.Equal(t, row{0, again.Identity.Coordinates, dead.Identity.Coordinates, ""}, b.row())
		late := replay(newOwner(), dead, 80)
		b.run([]*record.Record{late}, never)
		requireOutcomes(t, record.Duplicate, late)
		require.Equal(t, Duplicate, b.bury(late, "exhausted"), "one that failed meanwhile gets no letter")
		b.requireLedger(1)
	})

	t.Run("SkippedReplayIsSkippedForAllOfThem", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		dead, again := dies(t, b)
		b.run([]*record.Record{again}, skip)
		requireOutcomes(t, record.Skipped, again)
		require.Equal(t, row{1, again.Identity.Coordinates, dead.Identity.Coordinates, ""}, b.row())
		own := []*record.Record{rec(newOwner(), 1, ""), replay(newOwner(), dead, 70)}
		for _, r := range own {
			b.run([]*record.Record{r}, never)
		}
		requireOutcomes(t, record.Skipped, own...)
		other := replay(newOwner(), dead, 71)
		b.run([]*record.Record{other}, never)
		requireOutcomes(t, record.Duplicate, other)
		b.requireLedger(0)
	})

	runByID(t, "ReplayOfWhatNeverDiedIsADuplicate", "its inbox knows the dead ones alone, and of others there are no letters", func(t *testing.T) {
		t.Parallel()
		for name, apply := range map[string]Apply{"effected": effect, "skipped": skip} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, setup{})
				r := rec(newOwner(), 1, "")
				b.run([]*record.Record{r}, apply)
				again := replay(newOwner(), r, 70)
				b.run([]*record.Record{again}, never)
				requireOutcomes(t, record.Duplicate, again)
			})
		}
	})

	// The letter of another system, or one whose row was swept.
	t.Run("ReplayOfWhatTheInboxDoesNotKnowRunsOnceAndDiesLikeAnyOther", func(t *testing.T) {
		t.Parallel()
		b := newBench(t, setup{})
		unknown := rec(newOwner(), 1, "")
		first, second := replay(newOwner(), unknown, 70), replay(newOwner(), unknown, 71)
		b.run([]*record.Record{first}, failures["ErrorAfterSQL"])
		require.Equal(t, Buried, b.bury(first, "exhausted"))
		require.Equal(t, row{2, first.Identity.Coordinates, 0, "exhausted"}, b.row())
		b.run([]*record.Record{second}, effect)
		requireOutcomes(t, record.Effected, second)
		b.requireLedger(1)
	})

	t.Run("LostCommitOfATakeOverIsAskedAndNotRunAgain", func(t *testing.T) {
		t.Parallel()
		for name, cut := range map[string]pgtest.Action{"request": pgtest.CutBefore, "reply": pgtest.CutReply} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				dsn := pgtest.DSN(t, migrations.Up, schema)
				proxy := pgtest.NewProxy(t, dsn)
				b := newBench(t, setup{dsn: proxy.DSN(), look: dsn})
				dead, again := dies(t, b)
				met := proxy.Once(pgtest.Commit, cut)
				b.runUntilCharged([]*record.Record{again}, Apply(effect))
				await(t, met)
				requireOutcomes(t, record.Effected, again)
				require.Equal(t, row{0, again.Identity.Coordinates, dead.Identity.Coordinates, ""}, b.row())
				b.requireLedger(1)
			})
		}
	})

	// Else the verdict was forgotten, and a redelivery of the first record ran.
	t.Run("ReplayWhoseHandlerEndsTheTransactionLeavesTheRowDead", func(t *testing.T) {
		t.Parallel()
		for _, sql := range []string{"commit", "commit; begin", "rollback", "rollback; begin"} {
			t.Run(sql, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, setup{})
				dead, again := dies(t, b)
				b.run([]*record.Record{again}, func(ctx context.Context, tx pgx.Tx, _ *record.Record) error {
					_, err := tx.Conn().Exec(ctx, sql)
					return err
				})
				requireErr(t, ErrRouteStopped, again)
				got := b.row()
				got.Reason = ""
				require.Equal(t, row{State: 2, Coordinates: dead.Identity.Coordinates}, got)
			})
		}
	})
}

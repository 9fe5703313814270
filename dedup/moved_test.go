package dedup

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// unread makes a record whose identity cannot be read: its field is an object.
func unread(o *owner, n int64) *record.Record {
	r := &record.Record{Topic: "orders", Offset: n, TopicID: topicID, Value: []byte(`{"meta":{"id":"e-1"}}`)}
	r.Bind(o, o.soft, "")
	if Identify(r, Field("meta")) == nil {
		panic("it can be read")
	}
	return r
}

// mended identifies a record by the path that was meant: one of the source, or dead's replay.
func mended(o *owner, dead *record.Record, replayedTo int64) *record.Record {
	r := &record.Record{Topic: dead.Topic, Offset: dead.Offset, TopicID: dead.TopicID, Value: dead.Value}
	if replayedTo > 0 {
		r.Topic, r.TopicID, r.Offset, r.Replay = "orders.billing.replay", replayTopicID, replayedTo, true
	}
	r.Bind(o, o.soft, "")
	err := Identify(r, Field("meta.id"))
	if r.Replay {
		err = IdentifyReplay(r, ReplayOf{
			ID: dead.Identity.ID, Key: dead.Identity.Key, Undecodable: true,
			TopicID: dead.TopicID, Partition: dead.Partition, Offset: dead.Offset,
		}, Field("meta.id"))
	}
	if err != nil {
		panic(err)
	}
	return r
}

// stateAt is of the row of the place where r was first read.
func (b *workbench) stateAt(r *record.Record) int16 {
	b.t.Helper()
	return query[int16](b, "select state from headrace.inbox where message_id = $1", r.Identity.Place)
}

func TestMoved(t *testing.T) {
	t.Parallel()
	never := func(context.Context, pgx.Tx, *record.Record) error { panic("it runs") }
	dies := func(t *testing.T) (*workbench, *record.Record) {
		t.Helper()
		b, dead := newBench(t, setup{}), unread(newOwner(), 1)
		require.Equal(t, Buried, b.bury(dead, "undecodable"))
		return b, dead
	}

	t.Run("OneIdentityHasOneEffectAlthoughItCouldNotBeRead", func(t *testing.T) {
		t.Parallel()
		b, dead := dies(t)
		sentAgain := mended(newOwner(), &record.Record{Topic: "orders", TopicID: topicID, Offset: 2, Value: dead.Value}, 0)
		b.run([]*record.Record{sentAgain}, effect)
		requireOutcomes(t, record.Effected, sentAgain)
		again := mended(newOwner(), dead, 70)
		b.run([]*record.Record{again}, never)
		requireOutcomes(t, record.Duplicate, again)
		require.Equal(t, int16(3), b.stateAt(dead))
		b.requireLedger(1)
	})

	t.Run("ReplayThatRunsLeavesNoDeadRowBehind", func(t *testing.T) {
		t.Parallel()
		for name, want := range map[string]struct {
			apply   Apply
			outcome record.Outcome
			effects int
		}{"effected": {effect, record.Effected, 1}, "skipped": {skip, record.Skipped, 0}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b, dead := dies(t)
				again := mended(newOwner(), dead, 70)
				b.run([]*record.Record{again}, want.apply)
				requireOutcomes(t, want.outcome, again)
				require.Equal(t, int16(3), b.stateAt(dead))
				b.requireLedger(want.effects)
			})
		}
	})

	t.Run("RedeliveredSourceRunsNeitherUnderTheOldIdentityNorTheNew", func(t *testing.T) {
		t.Parallel()
		b, dead := dies(t)
		b.run([]*record.Record{mended(newOwner(), dead, 70)}, effect)
		first := mended(newOwner(), dead, 0)
		b.run([]*record.Record{first}, never)
		requireOutcomes(t, record.Duplicate, first)
		// A deploy is rolled back: its identity cannot be read again, and no second letter is written.
		require.Equal(t, Duplicate, b.bury(unread(newOwner(), 1), "undecodable"))
		old := unread(newOwner(), 1)
		b.run([]*record.Record{old}, never)
		requireOutcomes(t, record.Duplicate, old)
		b.requireLedger(1)
	})

	// An earlier record held the offset, so that it comes again, to a build that can read it.
	t.Run("SourceThatCanBeReadNowIsDeadWhereItDied", func(t *testing.T) {
		t.Parallel()
		b, dead := dies(t)
		require.NoError(t, b.rt.Claimed(t.Context(), topicID, 0, 0))
		r, behind := mended(newOwner(), dead, 0), rec(newOwner(), 2, "")
		b.run([]*record.Record{r, behind}, unless(1, never))
		var was *DeadError
		require.ErrorAs(t, r.Err, &was)
		require.Equal(t, "undecodable", was.Reason)
		require.Equal(t, DeadOwn, b.bury(r, was.Reason))
		call := mended(newOwner(), dead, 0)
		answers, err := b.rt.Look(t.Context(), []*record.Record{call})
		require.NoError(t, err)
		require.Equal(t, []Answer{DeadOwn}, answers)
		requireOutcomes(t, record.Effected, behind)

		b.run([]*record.Record{mended(newOwner(), dead, 70)}, effect) // its letter is replayed
		require.NoError(t, b.rt.Claimed(t.Context(), topicID, 0, 0))
		last := mended(newOwner(), dead, 0)
		b.run([]*record.Record{last}, never)
		requireOutcomes(t, record.Duplicate, last)
		b.requireLedger(2)
	})

	t.Run("ClaimThatIsFarBehindItsDeadLooksForThemNoMore", func(t *testing.T) {
		t.Parallel()
		b, dead := dies(t)
		require.NoError(t, b.rt.Claimed(t.Context(), topicID, 0, 0))
		window := int(b.rt.suspects.inFlight())
		b.run([]*record.Record{rec(newOwner(), 2*window-1, "")}, effect)
		require.True(t, b.rt.died.any.Load())
		b.run([]*record.Record{rec(newOwner(), 2*window, "")}, effect)
		require.False(t, b.rt.died.any.Load())
		require.NoError(t, b.rt.Claimed(t.Context(), topicID, 0, 0))
		r := mended(newOwner(), dead, 0)
		b.run([]*record.Record{r}, never)
		requireErr(t, ErrDead, r)
	})

	t.Run("AnotherRecordAtThatPlaceIsNotDead", func(t *testing.T) {
		t.Parallel()
		b, dead := dies(t)
		require.NoError(t, b.rt.Claimed(t.Context(), topicID, 0, 0))
		r := mended(newOwner(), dead, 0) // the log was cut, and grew again
		r.Identity.ValueHash++
		b.run([]*record.Record{r}, effect)
		requireOutcomes(t, record.Effected, r)
	})

	t.Run("ReplayThatFailsAgainLeavesItDeadAndTheNextOneEndsBothRows", func(t *testing.T) {
		t.Parallel()
		b, dead := dies(t)
		again := mended(newOwner(), dead, 70)
		b.run([]*record.Record{again}, failures["ErrorAfterSQL"])
		requireErr(t, errBoom, again)
		require.Equal(t, Buried, b.bury(again, "exhausted"))
		require.Equal(t, int16(2), b.stateAt(dead))
		next := replay(newOwner(), again, 71) // its letter names the identity that was read
		next.Identity.Place = dead.Identity.Place
		b.run([]*record.Record{next}, effect)
		requireOutcomes(t, record.Effected, next)
		require.Equal(t, int16(3), b.stateAt(dead))
		b.requireLedger(1)
	})

	t.Run("ReplayThatWasEffectedMeanwhileIsNotBuriedAndLeavesNoDeadRow", func(t *testing.T) {
		t.Parallel()
		b, dead := dies(t)
		again := mended(newOwner(), dead, 70)
		b.run([]*record.Record{again}, failures["ErrorAfterSQL"])
		other := mended(newOwner(), &record.Record{Topic: "orders", TopicID: topicID, Offset: 2, Value: dead.Value}, 0)
		b.run([]*record.Record{other}, effect)
		require.Equal(t, Duplicate, b.bury(again, "exhausted"))
		require.Equal(t, int16(3), b.stateAt(dead))
		b.requireLedger(1)
	})

	t.Run("NewIdentityOfAConflictEndsItsDeadRow", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		b.run([]*record.Record{recAs(o, 1, "", "same", "v")}, effect)
		other := recAs(o, 2, "", "same", "w")
		require.Equal(t, Buried, b.bury(other, "id_conflict"))
		again := replay(newOwner(), other, 70)
		again.Identity.ID, again.Identity.Key = "new", KeyOf("new")
		b.run([]*record.Record{again}, effect)
		requireOutcomes(t, record.Effected, again)
		require.Equal(t, int16(3), b.stateAt(other))
		require.Equal(t, Duplicate, b.bury(recAs(newOwner(), 2, "", "same", "w"), "id_conflict"), "redelivered, it gets no second letter")
		b.requireLedger(2)
	})

	t.Run("ReplayInConflictAgainHasOneRowHoweverOften", func(t *testing.T) {
		t.Parallel()
		b, o := newBench(t, setup{}), newOwner()
		b.run([]*record.Record{recAs(o, 1, "", "same", "v")}, effect)
		other := recAs(o, 2, "", "same", "garbage")
		require.Equal(t, Buried, b.bury(other, "undecodable"))
		for offset := range int64(5) {
			require.Equal(t, Buried, b.bury(replay(newOwner(), other, 70+offset), "undecodable"))
		}
		require.Equal(t, 1, query[int](b, "select count(*) from headrace.inbox where state = 2"))
		require.Equal(t, DeadOwn, b.bury(recAs(newOwner(), 2, "", "same", "garbage"), "undecodable"))
		b.requireLedger(1)
	})

	t.Run("RowThatCannotBeWrittenLeavesTheReplayUnsettledAndNotRunAgain", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, schema)
		b := newBench(t, setup{dsn: dsn})
		dead := unread(newOwner(), 1)
		require.Equal(t, Buried, b.bury(dead, "undecodable"))
		b.exec(`create function refuse() returns trigger language plpgsql as $$ begin
			if new.state = 3 then raise 'not now'; end if; return new; end $$`)
		b.exec(`create trigger refuse before update on headrace.inbox for each row execute function refuse()`)
		again := mended(newOwner(), dead, 70)
		b.run([]*record.Record{again}, effect)
		require.False(t, again.Settled())
		require.Equal(t, fault.ClassUnavailable, new(fault.Classifier).Classify(context.Background(), again.Err).Class)
		b.exec(`drop trigger refuse on headrace.inbox`)
		b.run([]*record.Record{again}, never)
		requireOutcomes(t, record.Effected, again)
		require.Equal(t, int16(3), b.stateAt(dead))
		b.requireLedger(1)
	})
}

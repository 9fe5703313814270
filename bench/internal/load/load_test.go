package load

import (
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func topic(s Shape) *Topic { return &Topic{Shape: s, Balances: make([]int64, s.Keys)} }

func TestRecords(t *testing.T) {
	t.Parallel()
	t.Run("AddUpToTheBalances", func(t *testing.T) {
		t.Parallel()
		tp := topic(Shape{Records: 1000, Keys: 10})
		ids := map[string]bool{}
		for r := range tp.records() {
			require.InDelta(t, 100, len(r.Value), 25)
			ids[string(r.Headers[0].Value)] = true
		}
		require.Len(t, ids, 1000)
		require.Equal(t, 1000, tp.Fresh)
		require.Positive(t, tp.Total())
	})
	t.Run("OfPoisonHaveNoEffect", func(t *testing.T) {
		t.Parallel()
		tp := topic(Shape{Records: 1000, Keys: 10, Poison: 100})
		for range tp.records() {
		}
		require.Equal(t, 10, tp.Dead)
		require.Equal(t, 990, tp.Fresh)
	})
	t.Run("OfUnluckyKeysAreNotWaitedFor", func(t *testing.T) {
		t.Parallel()
		tp := topic(Shape{Records: 1000, Keys: 10, Failing: 5, Stuck: true}) // keys 0 and 5
		for range tp.records() {
		}
		require.InDelta(t, 200, tp.Unlucky, 60)
		require.Equal(t, 1000, tp.Fresh+tp.Unlucky)
		require.Zero(t, tp.Balances[0]+tp.Balances[5])
		require.Zero(t, tp.Dead)
	})
	t.Run("SentTwiceCountOnce", func(t *testing.T) {
		t.Parallel()
		tp := topic(Shape{Records: 1000, Keys: 10, Twice: 5})
		ids, n, last := map[string]bool{}, 0, ""
		for r := range tp.records() {
			n++
			id := string(r.Headers[0].Value)
			if n == 1000 {
				require.NotEqual(t, last, id, "the last one has an effect")
			}
			last, ids[id] = id, true
		}
		require.Equal(t, 1000, n)
		require.Len(t, ids, 801)
		require.Equal(t, 801, tp.Fresh)
	})
	t.Run("OfAHotTopicPostToOneAccount", func(t *testing.T) {
		t.Parallel()
		tp := topic(Shape{Records: 100, Keys: 10, Hot: true})
		keys := map[string]bool{}
		for r := range tp.records() {
			keys[string(r.Key)] = true
		}
		require.Greater(t, len(keys), 5, "in any partition")
		require.Equal(t, tp.Balances[0], tp.Total())
	})
}

// run is what a contender that does everything right leaves behind.
func run(t *testing.T) (*pgxpool.Pool, *Topic) {
	t.Helper()
	db := pgtest.New(t)
	tp := topic(Shape{Records: 40, Keys: 7})
	require.NoError(t, Reset(t.Context(), db, tp.Keys))
	for r := range tp.records() {
		_, err := db.Exec(t.Context(), `insert into stock_inbox values ('post', $1)`, uuid.MustParse(string(r.Headers[0].Value)))
		require.NoError(t, err)
	}
	for id, balance := range tp.Balances {
		_, err := db.Exec(t.Context(), `update accounts set balance = $1 where id = $2`, balance, id)
		require.NoError(t, err)
	}
	return db, tp
}

func TestVerify(t *testing.T) {
	t.Parallel()
	t.Run("TakesWhatIsRight", func(t *testing.T) {
		t.Parallel()
		db, tp := run(t)
		require.NoError(t, Verify(t.Context(), db, tp, StockInbox))
		posted, err := Posted(t.Context(), db)
		require.NoError(t, err)
		require.Equal(t, tp.Total(), posted)
	})
	for name, c := range map[string]struct{ sql, says string }{
		"CatchesAnEffectTooMuch":           {`update accounts set balance = balance + 1 where id = 3`, "account 3"},
		"CatchesTwoErrorsThatAddUpToNone":  {`update accounts set balance = balance + (id - 4) where id in (3, 5)`, "account"},
		"CatchesAnAccountThatIsGone":       {`delete from accounts where id = 3`, "6 accounts of 7"},
		"CatchesAnAccountThatNobodyHas":    {`insert into accounts values (7, 0)`, "account 7"},
		"CatchesAnInboxRowThatIsMissing":   {`delete from stock_inbox where ctid in (select ctid from stock_inbox limit 1)`, "39, not 40"},
		"CatchesAnInboxRowThatIsTooMuch":   {`insert into stock_inbox values ('post', gen_random_uuid())`, "41, not 40"},
		"CatchesAContenderThatDidNotBegin": {`truncate stock_inbox; update accounts set balance = 0`, "account"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, tp := run(t)
			_, err := db.Exec(t.Context(), c.sql)
			require.NoError(t, err)
			require.ErrorContains(t, Verify(t.Context(), db, tp, StockInbox), c.says)
		})
	}
	t.Run("OfAnEmptyTableIsNotTheLastRun", func(t *testing.T) {
		t.Parallel()
		db, tp := run(t)
		require.NoError(t, Reset(t.Context(), db, tp.Keys))
		require.Error(t, Verify(t.Context(), db, tp, StockInbox))
	})
}

func TestKeyDecidesThePartition(t *testing.T) {
	t.Parallel()
	r := Posting{Account: 0}.Record("t", 17, uuid.New())
	require.Equal(t, strconv.Itoa(17), string(r.Key))
}

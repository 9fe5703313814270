package parking_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// survived is a Source whose process died with one line, of which record 1 is the head.
func survived(t *testing.T) *fed {
	t.Helper()
	s, pool := newStore(t, soon)
	s.SetLease(time.Second)
	park(t, s, head(rec("suspect", 1)))
	claimed(t, s, 1)
	return feedOf(t, s, pool, quick)
}

// nothing says that no message has come by the time that the Source has looked n times more.
func (f *fed) nothing() {
	f.t.Helper()
	select {
	case msg := <-f.out:
		rs, err := record.Records(msg)
		require.NoError(f.t, err)
		require.Fail(f.t, "a message came", "of offset %d", rs[0].Offset)
	case <-time.After(50 * time.Millisecond):
	}
}

func TestSource_ASuspectIsAloneWithWhatRuns(t *testing.T) {
	t.Parallel()

	// A record that waits, for as long as another owns what it needs, kept all suspects from being tried.
	t.Run("ItRunsWhileOthersWaitAndTheyResumeBehindIt", func(t *testing.T) {
		t.Parallel()
		f := survived(t)
		park(t, f.store, head(rec("waits", 2)))
		_, waits := f.next()
		require.EqualValues(t, 2, waits[0].Offset)
		record.Wait(waits)
		_, suspects := f.next()
		require.EqualValues(t, 1, suspects[0].Offset)
		resumed := make(chan bool, 1)
		go func() { resumed <- record.Resume(waits) }()
		select {
		case <-resumed:
			require.Fail(t, "it runs beside a suspect")
		case <-time.After(50 * time.Millisecond):
		}
		require.True(t, suspects[0].Settle(record.Effected))
		require.True(t, <-resumed)
		require.True(t, waits[0].Settle(record.Effected))
		f.parked(0)
	})

	// A suspect that waits kept everything else from being tried.
	t.Run("OthersRunWhileItWaitsAndItResumesWhenTheyHaveEnded", func(t *testing.T) {
		t.Parallel()
		f := survived(t)
		_, suspects := f.next()
		require.EqualValues(t, 1, suspects[0].Offset)
		park(t, f.store, head(rec("other", 2)))
		f.nothing()
		record.Wait(suspects)
		_, others := f.next()
		require.EqualValues(t, 2, others[0].Offset)
		resumed := make(chan bool, 1)
		go func() { resumed <- record.Resume(suspects) }()
		select {
		case <-resumed:
			require.Fail(t, "it runs beside another")
		case <-time.After(50 * time.Millisecond):
		}
		park(t, f.store, head(rec("late", 3)))
		f.nothing() // what comes later does not overtake a suspect
		require.True(t, others[0].Settle(record.Effected))
		require.True(t, <-resumed)
		f.nothing()
		require.True(t, suspects[0].Settle(record.Effected))
		_, late := f.next()
		require.True(t, late[0].Settle(record.Effected))
		f.parked(0)
	})
}

// Close waited for a whole lease when the database was gone while what had ended was written down.
func TestSource_CloseDoesNotWaitForALeaseThatCannotBeFinished(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t, migrations.Up)
	proxy := pgtest.NewProxy(t, dsn)
	openStore(t, pgtest.Pool(t, dsn), "r", soon)
	pool := pgtest.Pool(t, proxy.DSN())
	p := soon
	p.Lease = time.Hour
	s := openStore(t, pool, "r", p)
	park(t, s, head(rec("a", 1)))
	f := feedOf(t, s, pool, quick)
	_, rs := f.next()
	tried := proxy.Once(pgtest.SQL("from headrace.parked_keys"), pgtest.CutBefore)
	require.True(t, rs[0].Settle(record.Effected))
	<-tried
	proxy.Down()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = f.src.Close()
	}()
	select {
	case <-closed:
	case <-time.After(3 * patience):
		require.Fail(t, "Close does not end")
	}
}

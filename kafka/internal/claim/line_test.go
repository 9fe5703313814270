package claim

import (
	"context"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/record"
)

func TestLine(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"BatchesWhatWaitsUpToMaxBatch":            batchesWhatWaits,
		"BusyKeyBlocksItsOwnRecordsOnly":          busyKey,
		"FailedHeadIsFollowedInOrder":             failedHead,
		"EmptyKeyIsAKeyAndNilIsNone":              emptyKey,
		"ByPartitionNothingOvertakes":             byPartition,
		"WaitingBatchOccupiesNoLane":              waitingBatch,
		"WhatRunsAgainTakesNoLane":                resumedBeside,
		"WhatRunsAgainHasRoomForAsManyAsTheLanes": resumedRoom,
		"SoftEndsAResume":                         softEndsResume,
		"GivenBackRecordIsANewOneFromTheRawBytes": givenBack,
		"ReturnCostsNoBackoff":                    returned,
		"LaterLineMissesNothing":                  laterLine,
		"ARecordKnowsWhichCameBeforeIt":           followsOne,
		"SettledRecordIsForgotten":                settledIsForgotten,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, test)
		})
	}
}

func filled(order Order, lanes, maxBatch int, keys ...string) (*Claim, *Line) {
	c := newTestClaim(ample)
	l := c.NewLine(LineConfig{Order: order, Lanes: lanes, MaxBatch: maxBatch})
	c.Add(raws(keys...))
	return c, l
}

func batchesWhatWaits(t *testing.T) {
	_, l := filled(ByKey, 3, 2, "a", "b", "c")
	require.Equal(t, []int64{0, 1}, offsets(next(t, l).Records))
	require.Equal(t, []int64{2}, offsets(next(t, l).Records), "nothing waits to fill a batch")
	require.Nil(t, try(l))
}

func followsOne(t *testing.T) {
	c := newTestClaim(ample)
	l := c.NewLine(LineConfig{Order: Unordered, Lanes: 9, MaxBatch: 9})
	c.Add([]*kgo.Record{{Offset: 7}, {Offset: 9}})
	c.Add([]*kgo.Record{{Offset: 20}})
	c.Add([]*kgo.Record{{Offset: 15}}) // the log was cut off and grew again
	var follows []int64
	for _, r := range next(t, l).Records {
		follows = append(follows, r.Offset, r.Follows)
	}
	require.Equal(t, []int64{7, 6, 9, 7, 15, 14, 20, 9}, follows)
}

// settledIsForgotten has a batch across the border of two fetches, as every fetch of a backlog ends with.
func settledIsForgotten(t *testing.T) {
	c := newTestClaim(ample)
	l := c.NewLine(LineConfig{Order: ByKey, Lanes: 9, MaxBatch: 2})
	key := []byte("k")
	c.Add([]*kgo.Record{{Offset: 0, Key: key}, {Offset: 1}, {Offset: 2, Key: key}})
	first := settledFirst(t, l)
	c.Add([]*kgo.Record{{Offset: 3}, {Offset: 4}, {Offset: 5, Key: key}})
	settle(next(t, l).Records...)
	left := next(t, l)
	runtime.GC()
	require.Nil(t, first.Value(), "a claim that drains a backlog would keep all of it")
	require.Equal(t, []int64{4, 5}, offsets(left.Records))
}

// settledFirst has the batch on no stack when it returns.
func settledFirst(t *testing.T, l *Line) weak.Pointer[record.Record] {
	t.Helper()
	b := next(t, l)
	settle(b.Records...)
	return weak.Make(b.Records[0])
}

func busyKey(t *testing.T) {
	_, l := filled(ByKey, 3, 1, "a", "a", "b", "a", "c")
	a := next(t, l)
	require.Equal(t, []int64{2}, offsets(next(t, l).Records))
	require.Equal(t, []int64{4}, offsets(next(t, l).Records))
	require.Nil(t, try(l))
	settle(a.Records...)
	require.Equal(t, []int64{1}, offsets(next(t, l).Records))
}

// failedHead is [k1, k2, k1']: k1 fails for a while, k2 settles, k1' comes after k1.
func failedHead(t *testing.T) {
	c, l := filled(ByKey, 1, 1, "k1", "k2", "k1")
	head := next(t, l)
	record.Wait(head.Records)
	settle(next(t, l).Records...)
	require.Nil(t, try(l), "k1' stays behind k1")
	require.True(t, record.Resume(head.Records))
	settle(head.Records...)
	settle(next(t, l).Records...)
	mark, ok := c.Watermark()
	require.True(t, ok)
	require.Equal(t, Mark{Offset: 3, Epoch: 7}, mark)
}

func emptyKey(t *testing.T) {
	c, l := filled(ByKey, 9, 1)
	rs := raws("", "", "", "")
	rs[2].Key, rs[3].Key = []byte{}, []byte{}
	c.Add(rs)
	require.Empty(t, next(t, l).Records[0].Domain())
	require.Empty(t, next(t, l).Records[0].Domain())
	require.Equal(t, "k", next(t, l).Records[0].Domain())
	require.Nil(t, try(l))
}

func byPartition(t *testing.T) {
	_, l := filled(ByPartition, 9, 2, "a", "b", "", "d")
	first := next(t, l)
	require.Equal(t, []int64{0, 1}, offsets(first.Records))
	settle(first.Records[1])
	require.Nil(t, try(l))
	settle(first.Records[0])
	require.Equal(t, []int64{2, 3}, offsets(next(t, l).Records))
}

func waitingBatch(t *testing.T) {
	_, l := filled(Unordered, 1, 2, "a", "b", "c")
	b := next(t, l)
	require.Nil(t, try(l))
	record.Wait(b.Records[:1])
	require.Nil(t, try(l), "the other one still runs")
	record.Wait(b.Records[1:])
	require.Equal(t, []int64{2}, offsets(next(t, l).Records))
	_, running := b.Records[0].RunningSince()
	require.False(t, running)
}

func resumedBeside(t *testing.T) {
	_, l := filled(Unordered, 1, 1, "a", "b", "c", "d")
	a := next(t, l)
	record.Wait(a.Records)
	b := next(t, l)
	require.True(t, record.Resume(a.Records), "although the lane is taken")
	settle(b.Records...)
	c := next(t, l)
	require.Equal(t, []int64{2}, offsets(c.Records), "although one runs again")
	settle(a.Records...)
	require.Nil(t, try(l), "one lane is one lane")
	settle(c.Records...)
	require.NotNil(t, next(t, l))
	require.Nil(t, try(l))
}

// resumedRoom: the room of a line is for its lanes times MaxBatch records; who waits longest gets it first.
func resumedRoom(t *testing.T) {
	_, l := filled(Unordered, 2, 2, "a", "b", "c", "d", "e", "f")
	var all []*record.Record
	for range 3 {
		b := next(t, l)
		record.Wait(b.Records)
		all = append(all, b.Records...)
	}
	for _, r := range all[:4] {
		require.True(t, record.Resume([]*record.Record{r}))
	}
	resumed := make(chan int64, 2)
	for _, r := range all[4:] {
		go func() {
			if record.Resume([]*record.Record{r}) {
				resumed <- r.Offset
			}
		}()
		synctest.Wait()
	}
	require.Empty(t, resumed)
	record.Wait(all[:1])
	require.EqualValues(t, 4, <-resumed)
	synctest.Wait()
	require.Empty(t, resumed)
	settle(all[1])
	require.EqualValues(t, 5, <-resumed)
	settle(all[0], all[2], all[3], all[4], all[5])
	require.Zero(t, l.resumed)
	require.Equal(t, 2, l.lanes)
}

func softEndsResume(t *testing.T) {
	c, l := filled(Unordered, 1, 1, "a", "b")
	a := next(t, l)
	record.Wait(a.Records)
	b := next(t, l)
	record.Wait(b.Records)
	require.True(t, record.Resume(b.Records))
	resumed := make(chan bool)
	go func() { resumed <- record.Resume(a.Records) }()
	synctest.Wait()
	c.EndSoft(record.ErrRevoked)
	require.False(t, <-resumed)
	require.True(t, a.Records[0].Ending())
	require.Nil(t, l.Next(nil, open))
	require.False(t, record.Resume(a.Records))
}

func givenBack(t *testing.T) {
	c, l := filled(ByKey, 1, 1, "a")
	old := next(t, l).Records[0]
	old.Value = []byte("a middleware wrote here")
	old.Attempts = 2
	record.GiveBack([]*record.Record{old})
	given := time.Now()
	again := next(t, l).Records[0]
	require.Equal(t, firstBackoff, time.Since(given))
	require.NotSame(t, old, again)
	require.Equal(t, "v", string(again.Value))
	require.Zero(t, again.Attempts)
	require.False(t, old.Settle(record.Effected))
	record.GiveBack([]*record.Record{old}) // as if it were still there
	require.True(t, again.Settle(record.Effected))
	require.False(t, again.Settle(record.Dead), "the first settle wins")
	require.Equal(t, record.Effected, again.Outcome())
	require.Zero(t, c.Load().InFlight)
}

func returned(t *testing.T) {
	_, l := filled(ByKey, 1, 3, "a", "b", "a")
	next(t, l).Return()
	require.Equal(t, []int64{0, 1, 2}, offsets(next(t, l).Records))
}

func laterLine(t *testing.T) {
	c, first := filled(Unordered, 1, 3, "a", "b", "c")
	b := next(t, first)
	settle(b.Records[0], b.Records[2])
	later := c.NewLine(LineConfig{Lanes: 1, MaxBatch: 9})
	require.Equal(t, []int64{1, 2}, offsets(next(t, later).Records), "from the watermark on")
	settle(b.Records[1])
	mark, _ := c.Watermark()
	require.EqualValues(t, 1, mark.Offset)
}

func TestClaim(t *testing.T) {
	t.Parallel()
	t.Run("FullUntilAnEighthIsSettled", func(t *testing.T) {
		t.Parallel()
		low := 0
		c := New(Config{OnLow: func() { low++ }}, Limit{Records: 16, Bytes: 1 << 30})
		l := c.NewLine(LineConfig{Order: Unordered, Lanes: 1, MaxBatch: 16})
		c.Add(raws(strings.Split("abcdefghijklmno", "")...))
		require.False(t, c.Full())
		c.Add(raws("p"))
		require.True(t, c.Full())
		b := next(t, l)
		settle(b.Records[1:3]...)
		require.True(t, c.Full())
		settle(b.Records[3])
		require.False(t, c.Full(), "although the watermark stands")
		require.Equal(t, 1, low)
		c.Add(raws("q", "r"))
		require.False(t, c.Full(), "what is settled ahead of the watermark does not count")
		c.NewLine(LineConfig{Order: Unordered, Lanes: 1, MaxBatch: 10})
		c.Add(raws("g"))
		require.True(t, c.Full(), "nobody has settled them for a line that came later")
	})
	t.Run("ALimitOfOneAndOneWithoutEndAreLowAgain", func(t *testing.T) {
		t.Parallel()
		low := 0
		c := New(Config{OnLow: func() { low++ }}, Limit{Records: 1, Bytes: math.MaxInt64})
		l := c.NewLine(LineConfig{Order: Unordered, Lanes: 1, MaxBatch: 1})
		require.False(t, c.Full())
		c.Add(raws("a"))
		require.True(t, c.Full())
		settle(next(t, l).Records...)
		require.False(t, c.Full())
		require.Equal(t, 1, low)
	})
	t.Run("BytesFillItToo", func(t *testing.T) {
		t.Parallel()
		c := newTestClaim(Limit{Records: 100, Bytes: 1000})
		big := raw(0, "k")
		big.Value = make([]byte, 1000)
		c.Add(append(raws("x")[:0], big))
		require.True(t, c.Full())
	})
	t.Run("BytesOfWhatIsSettledAheadOfTheWatermarkCount", func(t *testing.T) {
		t.Parallel()
		c := newTestClaim(Limit{Records: 100, Bytes: 4 * overhead})
		l := c.NewLine(LineConfig{Order: Unordered, Lanes: 4, MaxBatch: 10})
		c.Add(raws("a", "b", "c", "d"))
		first := next(t, l)
		for range 3 {
			settle(next(t, l).Records...)
		}
		require.True(t, c.Full(), "they are kept for a line that may come")
		settle(first.Records...)
		require.False(t, c.Full())
	})
	t.Run("WhatIsHandedOutIsAPartOfTheWindow", func(t *testing.T) {
		t.Parallel()
		const each = overhead + 100
		c := newTestClaim(Limit{Records: 100, Bytes: 2 * handedOut * 3 * each})
		l := c.NewLine(LineConfig{Order: Unordered, Lanes: 2, MaxBatch: 10})
		var recs []*kgo.Record
		for i := range 10 {
			recs = append(recs, raw(int64(i), ""))
			recs[i].Key, recs[i].Value, recs[i].Headers = nil, make([]byte, 100), nil
		}
		c.Add(recs)
		require.Len(t, next(t, l).Records, 3)
		require.Len(t, next(t, l).Records, 3)
	})
	t.Run("ARecordLargerThanItsPartComesAlone", func(t *testing.T) {
		t.Parallel()
		c := newTestClaim(Limit{Records: 100, Bytes: 3})
		l := c.NewLine(LineConfig{Order: Unordered, Lanes: 2, MaxBatch: 10})
		c.Add(raws("a", "b"))
		require.Len(t, next(t, l).Records, 1)
		require.Len(t, next(t, l).Records, 1)
	})
	t.Run("NothingSettlesOnceClosed", func(t *testing.T) {
		t.Parallel()
		c, l := filled(ByKey, 1, 2, "a", "b")
		b := next(t, l)
		settle(b.Records[0])
		mark, ok := c.Close(record.ErrLost)
		require.True(t, ok)
		require.EqualValues(t, 1, mark.Offset)
		require.False(t, b.Records[1].Settle(record.Effected))
		require.ErrorIs(t, context.Cause(c.Hard()), record.ErrLost)
		_, ok = c.Close(record.ErrStopping)
		require.False(t, ok, "it is committed once")
		c.Add(raws("late"))
		require.Zero(t, c.Load().Records)
	})
	t.Run("DrainedWhenTheLastOneEnds", func(t *testing.T) {
		t.Parallel()
		c, l := filled(ByKey, 2, 1, "a", "b", "c")
		a, b := next(t, l), next(t, l)
		c.EndSoft(record.ErrRevoked)
		settle(a.Records...)
		select {
		case <-c.Drained():
			t.Fatal("b still runs")
		default:
		}
		record.GiveBack(b.Records)
		<-c.Drained()
	})
}

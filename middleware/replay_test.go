package middleware_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

var (
	ordersID = uuid.MustParse("11111111-2222-3333-4444-555555555555")
	written  = time.UnixMilli(1_700_000_000_000)
	original = []record.Header{
		{Key: "trace", Value: []byte("a")},
		{Key: "trace", Value: nil},
		// It reads like an envelope: whoever strips twice loses it.
		{Key: "headrace-route", Value: []byte("another")},
		{Key: dlq.MarkHeader, Value: []byte("1")},
	}
)

// replayed makes of r, a record as it was delivered, the record of its letter in the replay topic.
func replayed(r *record.Record, change func(e *dlq.Envelope)) *record.Record {
	env := dlq.Envelope{
		Origin: dlq.Coordinates{Topic: "orders", Partition: 0, Offset: r.Offset}, TopicID: ordersID, Timestamp: written,
		MessageID: r.Identity.Key, Group: "billing", Route: "ledger", Reason: dlq.Permanent, Replays: 1,
	}
	if change != nil {
		change(&env)
	}
	return &record.Record{
		Topic: "orders.billing.replay", Offset: 100 + r.Offset, Key: r.Key, Value: r.Value, Headers: env.Append(r.Headers),
		Timestamp: written.Add(time.Hour), Replay: true,
	}
}

// deliveredAt is a record of the source topic, identified as the stack does.
func deliveredAt(t *testing.T, offset int64) *record.Record {
	t.Helper()
	r := rec(offset, "k")
	r.TopicID, r.Headers = ordersID, original
	require.NoError(t, dedup.Identify(r, dedup.DefaultIdentity()...))
	return r
}

func TestReplay(t *testing.T) {
	t.Parallel()

	bubble(t, "BecomesTheRecordThatDied", func(t *testing.T) {
		b := newBench(t)
		var infos log[record.SettleInfo]
		b.rt.Hooks.OnSettle = infos.add
		r := deliveredAt(t, 7)
		tries := 0
		c := b.run(t, func(m *message.Message) error {
			is := record.Of(m.Context())
			require.Equal(t, original, is.Headers, "however often it is tried")
			require.True(t, written.Equal(is.Timestamp))
			require.Equal(t, r.Identity.Key, is.Identity.Key)
			require.True(t, is.Identity.FromCoordinates)
			require.Equal(t, "ledger", is.Letter.(*dlq.Envelope).Route)
			if tries++; tries < 3 {
				return fault.Transient(errBoom)
			}
			return nil
		}, replayed(r, nil))
		require.Equal(t, record.Effected, c.outcome(107))
		require.Equal(t, 3, tries)
		require.True(t, infos.get()[0].Replay)
	})

	bubble(t, "DiesAgainWithItsEarlierLetter", func(t *testing.T) {
		b := newBench(t)
		c := b.run(t, func(*message.Message) error { return errBoom }, replayed(deliveredAt(t, 7), nil))
		require.Equal(t, record.Dead, c.outcome(107))
		l := b.topic.of(107)[0]
		require.Equal(t, original, l.Record.Headers)
		require.Equal(t, int64(7), l.Record.Letter.(*dlq.Envelope).Origin.Offset)
	})

	bubble(t, "TwiceHasOneEffect", func(t *testing.T) {
		b := newBench(t)
		r, again := replayed(deliveredAt(t, 7), nil), replayed(deliveredAt(t, 7), nil)
		again.Offset++
		c := b.run(t, nothing, r)
		c.add(again)
		c.idle()
		require.Equal(t, record.Effected, c.outcome(107))
		require.Equal(t, record.Duplicate, c.outcome(108))
	})

	bubble(t, "OfALetterOfAnotherSystemIsKnownByWhereItWasFirstRead", func(t *testing.T) {
		b := newBench(t)
		r := replayed(deliveredAt(t, 7), func(e *dlq.Envelope) { e.MessageID = uuid.Nil })
		b.run(t, func(m *message.Message) error {
			require.Equal(t, ordersID.String()+"/0/7", record.Of(m.Context()).Identity.ID)
			return nil
		}, r)
	})

	bubble(t, "OfOthersIsLeftAloneAndHoldsUpNobody", func(t *testing.T) {
		b := newBench(t)
		var asked int
		b.rt.Decode = func(*record.Record) error { asked++; return nil }
		otherRoute := replayed(deliveredAt(t, 0), func(e *dlq.Envelope) { e.Route = "another" })
		otherGroup := replayed(deliveredAt(t, 1), func(e *dlq.Envelope) { e.Group = "another" })
		mine := replayed(deliveredAt(t, 2), nil)
		c := b.run(t, nothing, otherRoute, otherGroup, mine)
		require.Equal(t, record.Foreign, c.outcome(100))
		require.Equal(t, record.Foreign, c.outcome(101))
		require.Equal(t, record.Effected, c.outcome(102))
		require.Equal(t, 1, asked)
		require.Empty(t, b.reports.kinds())
		require.Equal(t, 1, b.in.ran, "the inbox hears of its own only")
	})

	bubble(t, "WithoutAnEnvelopeIsReportedAndHarmless", func(t *testing.T) {
		b := newBench(t)
		plain := rec(5, "k")
		plain.Replay = true
		forged := rec(6, "k")
		forged.Replay, forged.Headers = true, []record.Header{{Key: dlq.MarkHeader, Value: []byte("9")}}
		c := b.run(t, func(*message.Message) error { return errors.New("it ran") }, plain, forged)
		require.Equal(t, record.Foreign, c.outcome(5))
		require.Equal(t, record.Foreign, c.outcome(6))
		require.Equal(t, []string{record.ReportReplayWithoutEnvelope, record.ReportReplayWithoutEnvelope}, b.reports.kinds())
		require.Empty(t, b.topic.letters)
	})

	// Its letter would name no record, and could be larger than what the dead letter topic takes: then the partition stops.
	bubble(t, "WithHalfAnEnvelopeDoesNotRun", func(t *testing.T) {
		b := newBench(t)
		for i, missing := range []string{"topic", "topic-id", "partition", "offset", "timestamp", "message-id", "group", "route", "replays"} {
			r := replayed(deliveredAt(t, int64(i)), nil)
			for j := range r.Headers {
				if r.Headers[j].Key == dlq.Prefix+missing {
					r.Headers[j].Key = dlq.Prefix + "moon"
				}
			}
			c := b.run(t, func(*message.Message) error { return errors.New("it ran") }, r)
			require.Equal(t, record.Foreign, c.outcome(100+int64(i)), missing)
			require.Len(t, b.reports.kinds(), i+1)
		}
		require.Empty(t, b.topic.letters)
	})

	bubble(t, "OnASourceTopicAnEnvelopeIsData", func(t *testing.T) {
		b := newBench(t)
		r := replayed(deliveredAt(t, 7), func(e *dlq.Envelope) { e.Route = "another" })
		r.Replay = false
		headers := r.Headers
		c := b.run(t, func(m *message.Message) error {
			require.Equal(t, headers, record.Of(m.Context()).Headers)
			require.Nil(t, record.Of(m.Context()).Letter)
			return nil
		}, r)
		require.Equal(t, record.Effected, c.outcome(107))
	})

	bubble(t, "SettlingOthersSaysNothingAboutTheDatabase", func(t *testing.T) {
		b := newBench(t)
		h := b.handler(t, nothing)
		database := b.rt.Gates.Get(fault.Database)
		database.Down(time.Time{})
		elapse(time.Second) // a probe is due
		c := b.claim(t, 1, 1, h)
		c.add(replayed(deliveredAt(t, 0), func(e *dlq.Envelope) { e.Route = "another" }))
		c.idle()
		synctest.Wait()
		_, shut := database.Since()
		require.True(t, shut)
		c.add(replayed(deliveredAt(t, 1), nil))
		c.idle()
		synctest.Wait()
		_, shut = database.Since()
		require.False(t, shut)
	})

	bubble(t, "ThatCalledIsCalledAgainUnderItsKey", func(t *testing.T) {
		b := newBench(t)
		calls := 0
		b.calls(t, paid)
		r := deliveredAt(t, 7)
		h := b.handler(t, func(*message.Message) error {
			if calls++; calls == 1 {
				return errBoom
			}
			return nil
		})
		c := b.claim(t, 1, 10, h)
		c.add(r)
		c.idle()
		require.Equal(t, record.Dead, c.outcome(7))
		c.add(replayed(r, nil))
		c.idle()
		require.Equal(t, record.Effected, c.outcome(107))
		require.Equal(t, 2, calls)
	})
}

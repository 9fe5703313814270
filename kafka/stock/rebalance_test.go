package stock_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka/stock"
	"github.com/headrace/headrace/record"
)

func graces(drain, hard time.Duration) func(*stock.Config) {
	return func(c *stock.Config) { c.Source.DrainGrace, c.Source.HardGrace = drain, hard }
}

// Stock watermill-kafka drops an Ack that comes while the group rebalances, and its record is delivered again.
func TestAckDuringARebalanceIsNotLost(t *testing.T) {
	t.Parallel()
	brokers(t, func(t *testing.T, brokers []string) {
		w := newWorld(t, brokers, 2)
		w.produce(0, 1)
		w.produce(1, 1)
		var handled atomic.Int64
		entered, leave := make(chan *record.Record, 2), make(chan struct{})
		s := w.subscriber()
		first := handle(w.messages(s), func(msg *message.Message) error {
			handled.Add(1)
			entered <- one(t, msg)
			<-leave
			return msg.Context().Err()
		})
		held := <-entered
		<-entered
		second := w.subscriber()
		other := handle(w.messages(second), func(*message.Message) error { handled.Add(1); return nil })
		select {
		case <-held.Soft():
		case <-time.After(patience):
			require.FailNow(t, "it is not told of the rebalance")
		}
		close(leave) // they finish while the group waits for them
		w.eventually("both members read again", func() bool { return w.events("assigned") == 4 })
		w.eventually("it is committed", func() bool { return w.committed()[0] == 1 && w.committed()[1] == 1 })
		require.NoError(t, errors.Join(s.Close(), second.Close()))
		first.Wait()
		other.Wait()
		require.EqualValues(t, 2, handled.Load(), "a record was delivered again")
		require.Equal(t, 2, w.events("revoked"))
	})
}

// Stock watermill-kafka's contexts do not end with the session, and its nack loops on a partition that has gone.
func TestContextOfARevokedRecordEndsAndTheOtherMemberGetsIt(t *testing.T) {
	t.Parallel()
	brokers(t, func(t *testing.T, brokers []string) {
		w := newWorld(t, brokers, 1)
		w.produce(0, 3)
		s := w.subscriber(graces(time.Second, 5*time.Second))
		messages := w.messages(s)
		msg := w.take(messages)
		r := one(t, msg)
		second := w.subscriber(graces(time.Second, 5*time.Second))
		taken := w.messages(second)
		<-r.Soft()
		require.NoError(t, msg.Context().Err(), "the grace has not been over")
		<-msg.Context().Done()
		require.ErrorIs(t, context.Cause(msg.Context()), record.ErrRevoked)
		msg.Nack()
		// Range gives the partition to either.
		again := func() *message.Message {
			select {
			case m := <-messages:
				return m
			case m := <-taken:
				return m
			case <-time.After(patience):
				require.FailNow(t, "it does not come again")
				return nil
			}
		}
		for offset := range int64(3) {
			m := again()
			require.Equal(t, offset, one(t, m).Offset)
			m.Ack()
		}
		require.False(t, r.Settle(record.Effected), "too late")
		w.eventually("it is committed", func() bool { return w.committed()[0] == 3 })
	})
}

func TestHandlerThatIgnoresItsContextKeepsNobodyFromThePartition(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	w.produce(0, 1)
	s := w.subscriber(graces(200*time.Millisecond, 200*time.Millisecond))
	msg := w.take(w.messages(s))
	r := one(t, msg)
	began := time.Now()
	require.NoError(t, s.Close())
	require.Less(t, time.Since(began), 5*time.Second)
	require.ErrorIs(t, context.Cause(msg.Context()), record.ErrStopping)

	second := w.subscriber()
	again := w.take(w.messages(second))
	require.EqualValues(t, 0, one(t, again).Offset)
	require.False(t, r.Settle(record.Effected))
	msg.Ack()
	require.Empty(t, w.committed())
	again.Ack()
	w.eventually("it is committed", func() bool { return w.committed()[0] == 1 })
}

func TestPartitionThatIsLostEndsAtOnce(t *testing.T) {
	t.Parallel()
	fake := kafkatest.Fake(t)
	w := newWorld(t, fake.ListenAddrs(), 1)
	w.produce(0, 1)
	s := w.subscriber(graces(20*time.Second, 20*time.Second))
	messages := w.messages(s)
	msg := w.take(messages)
	r := one(t, msg)
	fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.UnknownMemberID, TopLevel: true, Count: 1})
	<-msg.Context().Done()
	require.ErrorIs(t, context.Cause(msg.Context()), record.ErrLost)
	w.eventually("it has ended", func() bool { return w.events("lost") == 1 })
	require.False(t, r.Settle(record.Effected), "somebody else may own it")
	w.take(messages).Ack()
	w.eventually("it is committed", func() bool { return w.committed()[0] == 1 })
}

func TestStop(t *testing.T) {
	t.Parallel()

	// Stock watermill-kafka's Close throws what is finished meanwhile away.
	t.Run("WhatFinishesWithinTheGraceIsCommitted", func(t *testing.T) {
		t.Parallel()
		brokers(t, func(t *testing.T, brokers []string) {
			w := newWorld(t, brokers, 1)
			w.produce(0, 2)
			s := w.subscriber()
			messages := w.messages(s)
			msg := w.take(messages)
			r := one(t, msg)
			closed := make(chan error, 1)
			go func() { closed <- s.Close() }()
			<-r.Soft()
			require.True(t, r.Settle(record.Effected))
			require.NoError(t, <-closed)
			require.EqualValues(t, 1, w.committed()[0])
			_, open := <-messages
			require.False(t, open, "nothing more begins")
			_, err := s.Subscribe(t.Context(), w.topic)
			require.ErrorContains(t, err, "closed")
		})
	})

	// The race detector is what fails here.
	t.Run("AtAnyMomentOfItsStart", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
		for i := range 40 {
			s := w.subscriber()
			messages := w.messages(s)
			timer := time.NewTimer(100*time.Millisecond + time.Duration(i)*2*time.Millisecond)
			<-timer.C
			require.NoError(t, s.Close())
			for range messages { // until it is closed
			}
		}
	})

	t.Run("ItsContextEndsTheGrace", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
		w.produce(0, 1)
		s := w.subscriber(graces(30*time.Second, 10*time.Second))
		msg := w.take(w.messages(s))
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		stopped := make(chan error, 1)
		go func() { stopped <- s.Stop(ctx) }()
		<-msg.Context().Done()
		msg.Nack()
		require.NoError(t, <-stopped)
		require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded, "it has not waited for the grace")
		require.Empty(t, w.committed())
	})

	t.Run("BeforeAnythingWasSubscribed", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
		require.NoError(t, w.subscriber().Close())
	})

	// Sarama's own Close waits for as long as the others drain.
	t.Run("WhileAJoinIsPending", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
		w.produce(0, 1)
		msg := w.take(w.messages(w.subscriber(graces(20*time.Second, time.Second))))
		r := one(t, msg)
		second := w.subscriber(func(c *stock.Config) { c.Source.CommitReserve = time.Second })
		w.messages(second)
		<-r.Soft() // the second's join waits for it
		began := time.Now()
		require.NoError(t, second.Close())
		require.Less(t, time.Since(began), 10*time.Second)
		require.NoError(t, msg.Context().Err(), "the first still has its grace")
		msg.Ack()
		w.eventually("it is committed", func() bool { return w.committed()[0] == 1 })
	})

	// What it settles can be committed no more: it is delivered again, and finds its inbox row.
	t.Run("WhileNoBrokerAnswers", func(t *testing.T) {
		t.Parallel()
		fake := kafkatest.Fake(t)
		w := newWorld(t, fake.ListenAddrs(), 1)
		w.produce(0, 2)
		s := w.subscriber(func(c *stock.Config) { c.Source.CommitReserve = time.Second })
		messages := w.messages(s)
		w.take(messages).Ack()
		w.take(messages).Ack()
		fake.Close()
		began := time.Now()
		require.NoError(t, s.Close())
		require.Less(t, time.Since(began), 10*time.Second)
		_, open := <-messages
		require.False(t, open)
	})

	t.Run("WhileTheFirstLookUpHasNoAnswer", func(t *testing.T) {
		t.Parallel()
		silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts, and that is all
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, silent.Close()) })
		w := &world{t: t, brokers: []string{silent.Addr().String()}, topic: "t", group: "g"}
		s := w.subscriber()
		messages := w.messages(s)
		require.Never(t, func() bool { return s.Ready() == nil }, 500*time.Millisecond, 100*time.Millisecond)
		began := time.Now()
		require.NoError(t, s.Close())
		require.Less(t, time.Since(began), 3*time.Second)
		_, open := <-messages
		require.False(t, open)
	})
}

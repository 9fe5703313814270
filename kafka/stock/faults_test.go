package stock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl/aws"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/kafka/stock"
	"github.com/headrace/headrace/record"
)

func TestHostileRecordsComeAsTheyAre(t *testing.T) {
	t.Parallel()
	brokers(t, func(t *testing.T, brokers []string) {
		w := newWorld(t, brokers, 1)
		headers := []kgo.RecordHeader{
			{Key: "twice", Value: []byte("1")},
			{Key: "nil", Value: nil},
			{Key: "empty", Value: []byte{}},
			{Key: "twice", Value: []byte("2")},
			{Key: "\xff\xfe", Value: []byte("\x00\xff\x80")},
			{Key: "", Value: []byte("no name")},
			{Key: record.UUIDHeader, Value: nil},
			{Key: record.CountKey, Value: []byte("500")},
			{Key: "headrace-dlq", Value: []byte("7")},
		}
		for _, key := range [][]byte{nil, {}, []byte("k"), {0xff, 0}} {
			for _, value := range [][]byte{nil, {}, []byte("\xff\x00"), []byte("{}")} {
				kafkatest.Produce(t, brokers, &kgo.Record{Topic: w.topic, Key: key, Value: value, Headers: headers})
			}
		}
		kafkatest.Produce(t, brokers, &kgo.Record{Topic: w.topic, Timestamp: time.UnixMilli(1)})
		ids, err := kafkatest.Admin(t, brokers).ListTopics(t.Context(), w.topic)
		require.NoError(t, err)
		s := w.subscriber()
		messages := w.messages(s)
		for _, was := range kafkatest.ReadAll(t, brokers, w.topic) {
			msg := w.take(messages)
			r := one(t, msg)
			require.Equal(t, was.Offset, r.Offset)
			require.Equal(t, was.Key, r.Key)
			require.Equal(t, was.Value, r.Value)
			require.True(t, was.Timestamp.Equal(r.Timestamp), "%s %s", was.Timestamp, r.Timestamp)
			require.Len(t, r.Headers, len(was.Headers))
			for i, h := range was.Headers {
				require.Equal(t, record.Header{Key: h.Key, Value: h.Value}, r.Headers[i])
			}
			require.EqualValues(t, ids[w.topic].ID, r.TopicID)
			require.NotEmpty(t, msg.UUID)
			msg.Ack()
		}
		w.eventually("all are committed", func() bool { return w.committed()[0] == 17 })
	})
}

func TestRecordThatIsGivenBackComesAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	w.produce(0, 2)
	messages := w.messages(w.subscriber())
	first := w.take(messages)
	r := one(t, first)
	first.Payload[0] = 'x'
	given := time.Now()
	first.Nack()
	second := w.take(messages)
	require.GreaterOrEqual(t, time.Since(given), 100*time.Millisecond, "not at once: it would be a busy loop")
	again := one(t, second)
	require.NotSame(t, r, again)
	require.Equal(t, "0", string(again.Value))
	require.False(t, r.Settle(record.Effected), "the old delivery")
	second.Ack()
	require.EqualValues(t, 1, one(t, w.take(messages)).Offset)
}

func TestNothingBeginsWhileAGateIsShutAndTheMembershipGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t, kfake.GroupMinSessionTimeout(time.Millisecond)).ListenAddrs(), 2)
	w.produce(0, 1)
	w.produce(1, 1)
	g := &gate{shut: true}
	s := w.subscriber(func(c *stock.Config) { c.Source.SessionTimeout = 1500 * time.Millisecond })
	messages := w.messages(s.Subscriber(kafka.Subscription{Gates: []kafka.Gate{g}}))
	w.eventually("it has its partitions", func() bool { return w.events("assigned") == 2 })
	select {
	case <-messages:
		require.FailNow(t, "something began")
	case <-time.After(5 * time.Second): // three sessions
	}
	require.NoError(t, s.Ready())
	require.Zero(t, w.events("lost")+w.events("revoked"))
	g.set(false)
	w.take(messages).Ack()
	w.take(messages).Ack()
	w.eventually("all are committed", func() bool { return len(w.committed()) == 2 })
}

func TestTwoRoutesOnATopicEachGetEveryRecordAndBothMoveTheOffset(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	w.produce(0, 2)
	s := w.subscriber()
	post := w.messages(s.Subscriber(kafka.Subscription{Name: "post"}))
	mail := w.messages(s.Subscriber(kafka.Subscription{Name: "mail", Replay: true}))
	require.Eventually(t, func() bool { return w.events("assigned") == 1 }, patience, 10*time.Millisecond)
	posted, mailed := w.take(post), w.take(mail)
	require.NotSame(t, one(t, posted), one(t, mailed))
	require.False(t, one(t, posted).Replay)
	require.True(t, one(t, mailed).Replay)
	posted.Ack()
	require.Never(t, func() bool { return len(w.committed()) > 0 }, time.Second, 100*time.Millisecond)
	mailed.Nack() // one route's failure is not the other's
	again := w.take(mail)
	again.Ack()
	w.eventually("it is committed", func() bool { return w.committed()[0] == 1 })
	require.EqualValues(t, 1, one(t, w.take(post)).Offset)
	require.EqualValues(t, 1, one(t, w.take(mail)).Offset)
}

// members counts those of the group, and who has partitions.
func (w *world) members() (n int) {
	w.t.Helper()
	groups, err := kafkatest.Admin(w.t, w.brokers).DescribeGroups(w.t.Context(), w.group)
	require.NoError(w.t, err)
	return len(groups[w.group].Members)
}

// It costs a rebalance of all for each topic at start, and each change of one is felt by all.
func TestEachTopicIsAMemberOfItsOwnInOneGroup(t *testing.T) {
	t.Parallel()
	brokers(t, func(t *testing.T, brokers []string) {
		w := newWorld(t, brokers, 2)
		replay := w.topic + ".replay"
		kafkatest.CreateTopic(t, brokers, replay, 2)
		s := w.subscriber(func(c *stock.Config) { c.Source.Topics = []string{w.topic, replay} })
		messages := w.messages(s)
		require.Error(t, s.Ready(), "not all topics are subscribed")
		replays, err := s.Subscribe(t.Context(), replay)
		require.NoError(t, err)
		w.eventually("all partitions are read", func() bool { return s.Ready() == nil && len(s.Stats()) == 4 })
		require.Equal(t, 2, w.members())
		w.produce(0, 1)
		kafkatest.Produce(t, brokers, &kgo.Record{Topic: replay, Partition: 1})
		w.take(messages).Ack()
		msg := w.take(replays)
		require.Equal(t, replay, one(t, msg).Topic)
		msg.Ack()
		w.eventually("all is committed", func() bool { return w.committed()[0] == 1 })
	})
}

func TestStarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	w.produce(0, 2)
	var told []string
	s := w.subscriber()
	messages := w.messages(s.Subscriber(kafka.Subscription{
		Started: func(_ context.Context, first *record.Record) func(context.Context) {
			told = append(told, "started at "+string(first.Value))
			return func(context.Context) { told = append(told, "ended") }
		},
	}))
	w.take(messages).Ack()
	w.take(messages).Ack()
	require.NoError(t, s.Close())
	require.Equal(t, []string{"started at 0", "ended"}, told)
}

func TestRecordThatRunsPastMaxPollIntervalEndsTheMember(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	w.produce(0, 1)
	s := w.subscriber(graces(100*time.Millisecond, 100*time.Millisecond), func(c *stock.Config) {
		c.Source.MaxPollInterval = 3 * time.Second
	})
	msg := w.take(w.messages(s.Subscriber(kafka.Subscription{Name: "post", AttemptTimeout: time.Second})))
	require.NoError(t, s.Live())
	select {
	case <-s.Done():
	case <-time.After(patience):
		require.FailNow(t, "it goes on")
	}
	require.ErrorContains(t, s.Err(), "offset 0 has been running for")
	require.Equal(t, s.Err(), s.Live())
	require.Equal(t, []string{record.ReportStuckRecord}, w.kinds())
	require.Zero(t, w.members(), "another can take over")
	require.Error(t, msg.Context().Err())
}

// Sarama, told not to reset offsets, leaves and joins the group for ever, and reads nothing of the other partitions.
func TestOffsetOutOfRangeIsHeldAndNoStormOfJoins(t *testing.T) {
	t.Parallel()
	fake := kafkatest.Fake(t)
	w := newWorld(t, fake.ListenAddrs(), 1)
	joins := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Observe: true, Count: -1})
	w.produce(0, 5)
	w.commit(999)
	s := w.subscriber()
	w.messages(s)
	w.eventually("it is reported", func() bool { return len(w.kinds()) == 1 })
	require.Never(t, func() bool { return joins.Hits() > 2 }, 3*time.Second, 100*time.Millisecond)
	require.Equal(t, []string{record.ReportOffsetOutOfRange}, w.kinds(), "once")
	require.EqualValues(t, 999, w.reports[0].Offset)
	require.ErrorContains(t, s.Ready(), "committed offset 999 is outside the log, which holds 0 to 5")
	var p *kafka.ProblemError
	require.ErrorAs(t, s.Ready(), &p)
	require.Equal(t, w.reports[0].Hint, p.Hint())
	require.Greater(t, time.Since(p.Since), 2*time.Second, "and not since Sarama told of it last")
	require.NoError(t, s.Live())
	require.EqualValues(t, 999, w.committed()[0], "nobody resets it")
	require.NoError(t, s.Close())

	w.commit(3)
	messages := w.messages(w.subscriber())
	require.EqualValues(t, 3, one(t, w.take(messages)).Offset)
}

// commit sets the group's offset of partition 0 by hand.
func (w *world) commit(offset int64) {
	w.t.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(w.topic, 0, offset, -1)
	require.NoError(w.t, kafkatest.Admin(w.t, w.brokers).CommitAllOffsets(w.t.Context(), w.group, offsets))
}

func TestTopicThatWasMadeAnewIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
	w.produce(0, 1)
	s := w.subscriber()
	messages := w.messages(s)
	w.take(messages).Ack()
	w.eventually("it is committed", func() bool { return w.committed()[0] == 1 })
	_, err := kafkatest.Admin(t, w.brokers).DeleteTopics(t.Context(), w.topic)
	require.NoError(t, err)
	kafkatest.CreateTopic(t, w.brokers, w.topic, 1)
	w.produce(0, 3)
	other := w.subscriber() // rebalances
	others := w.messages(other)
	w.eventually("it is told", func() bool { return slices.Contains(w.kinds(), record.ReportTopicRecreated) })
	require.ErrorContains(t, s.Ready(), "topic_recreated")
	require.NoError(t, other.Close())
	for range others {
	}
	select {
	case <-messages:
		require.FailNow(t, "a record of another topic")
	case <-time.After(time.Second):
	}
}

func TestGroupThatRefusesIsNotStormed(t *testing.T) {
	t.Parallel()
	fake := kafkatest.Fake(t)
	w := newWorld(t, fake.ListenAddrs(), 1)
	w.produce(0, 1)
	refuse := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Err: kerr.GroupAuthorizationFailed, TopLevel: true, Count: -1})
	s := w.subscriber()
	messages := w.messages(s)
	w.eventually("it is reported", func() bool { return len(w.kinds()) == 1 })
	require.Never(t, func() bool { return refuse.Hits() > 5 }, 3*time.Second, 100*time.Millisecond)
	require.Equal(t, []string{record.ReportGroupError}, w.kinds())
	require.ErrorIs(t, s.Ready(), sarama.ErrGroupAuthorizationFailed)
	refuse.Remove()
	w.take(messages).Ack()
	w.eventually("it is over", func() bool { return s.Ready() == nil })
}

func TestCommitsThatFailAreReportedOnce(t *testing.T) {
	t.Parallel()
	fake := kafkatest.Fake(t)
	w := newWorld(t, fake.ListenAddrs(), 1)
	w.produce(0, 3)
	commits := fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.GroupAuthorizationFailed, Count: -1})
	s := w.subscriber()
	messages := w.messages(s)
	w.take(messages).Ack()
	w.eventually("it is tried again and again", func() bool { return commits.Hits() > 3 })
	require.Equal(t, []string{record.ReportCommitFailed}, w.kinds())
	commits.Remove()
	w.take(messages).Ack()
	w.eventually("it is committed", func() bool { return w.committed()[0] == 2 })
}

func TestClusterWithoutTopicIDsIsRefused(t *testing.T) {
	t.Parallel()
	fake := kafkatest.Fake(t, kfake.MaxVersions(kversion.V2_7_0()))
	w := newWorld(t, fake.ListenAddrs(), 1)
	s := w.subscriber()
	messages := w.messages(s)
	select {
	case <-s.Done():
	case <-time.After(patience):
		require.FailNow(t, "it goes on")
	}
	require.ErrorContains(t, s.Err(), "gives topics no ids")
	_, open := <-messages
	require.False(t, open)
}

func TestConfig(t *testing.T) {
	t.Parallel()
	source := kafka.SourceConfig{Client: kafka.ClientConfig{Brokers: []string{"localhost:1"}}, Group: "g"}
	refused := func(t *testing.T, want string, change func(*kafka.SourceConfig), sarama ...func(*sarama.Config)) {
		t.Helper()
		cfg := source
		if change != nil {
			change(&cfg)
		}
		made, err := stock.Transport(sarama...)(cfg)
		require.ErrorContains(t, err, want)
		require.Nil(t, made, "no typed nil")
	}
	t.Run("WhatASourceRefuses", func(t *testing.T) {
		t.Parallel()
		refused(t, "no consumer group", func(c *kafka.SourceConfig) { c.Group = "" })
		refused(t, "exceeds RebalanceTimeout", func(c *kafka.SourceConfig) { c.DrainGrace = time.Hour })
	})
	t.Run("SASLThatCannotBeHandedOn", func(t *testing.T) {
		t.Parallel()
		refused(t, "AWS_MSK_IAM cannot be handed on to Sarama", func(c *kafka.SourceConfig) {
			c.Client.SASL = aws.Auth{AccessKey: "u", SecretKey: "p"}.AsManagedStreamingIAMMechanism()
		})
	})
	t.Run("SASLIsHandedOn", func(t *testing.T) {
		t.Parallel()
		cfg := source
		cfg.Client.SASL = plain.Auth{Zid: "z", User: "u", Pass: "p"}.AsMechanism()
		made, err := stock.Transport(func(c *sarama.Config) {
			require.True(t, c.Net.SASL.Enable)
			require.Equal(t, []string{"PLAIN", "z", "u", "p"}, []string{string(c.Net.SASL.Mechanism), c.Net.SASL.AuthIdentity, c.Net.SASL.User, c.Net.SASL.Password})
		})(cfg)
		require.NoError(t, err)
		require.NoError(t, made.Stop(t.Context()))
	})
	t.Run("WhatLosesRecords", func(t *testing.T) {
		t.Parallel()
		for want, change := range map[string]func(*sarama.Config){
			"ResetInvalidOffsets": func(c *sarama.Config) { c.Consumer.Group.ResetInvalidOffsets = true },
			"AutoCommit":          func(c *sarama.Config) { c.Consumer.Offsets.AutoCommit.Enable = false },
			"Offsets.Initial":     func(c *sarama.Config) { c.Consumer.Offsets.Initial = sarama.OffsetNewest },
			"IsolationLevel":      func(c *sarama.Config) { c.Consumer.IsolationLevel = sarama.ReadUncommitted },
			"Return.Errors":       func(c *sarama.Config) { c.Consumer.Return.Errors = false },
			"cooperative": func(c *sarama.Config) {
				c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
			},
			"MaxOpenRequests": func(c *sarama.Config) { c.Net.MaxOpenRequests = 0 },
		} {
			refused(t, want, nil, change)
		}
	})
	t.Run("TLSAndDialAreHandedOn", func(t *testing.T) {
		t.Parallel()
		cfg := source
		dialed := make(chan string, 100)
		cfg.Client.TLS = &tls.Config{ServerName: "broker", MinVersion: tls.VersionTLS13}
		cfg.Client.Dial = func(_ context.Context, _, addr string) (net.Conn, error) {
			dialed <- addr
			return nil, errors.New("nobody there")
		}
		made, err := stock.Transport(func(c *sarama.Config) {
			require.True(t, c.Net.TLS.Enable)
			require.Equal(t, "broker", c.Net.TLS.Config.ServerName)
			_, err := c.Net.Proxy.Dialer.Dial("tcp", "localhost:7")
			require.ErrorContains(t, err, "nobody there")
		})(cfg)
		require.NoError(t, err)
		require.Equal(t, "localhost:7", <-dialed)
		require.NoError(t, made.Stop(t.Context()))
	})
}

var _ message.Subscriber = (*stock.Subscriber)(nil)

package dlq_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

func TestReplay_Faults(t *testing.T) {
	t.Parallel()
	fake := func(t *testing.T) (*kfake.Cluster, scene) {
		t.Helper()
		f := kafkatest.Fake(t)
		return f, newScene(t, f.ListenAddrs(), 1)
	}

	t.Run("AnEndedContextStopsItAndTheSummaryIsTrue", func(t *testing.T) {
		t.Parallel()
		_, s := fake(t)
		dead(t, s.brokers, s.from, 1200)
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("SIGTERM")
		cfg := s.config()
		told := 0
		cfg.Each = func(*dlq.Entry, dlq.Result) { told++; cancel(why) }
		summary, err := dlq.Replay(ctx, cfg)
		require.Equal(t, why, err)
		sent := s.replayed(t)
		require.EqualValues(t, len(sent), summary.Sent)
		require.EqualValues(t, told, summary.Matched)
		require.Less(t, len(sent), 1200)

		cfg.Each = nil
		summary, err = dlq.Replay(t.Context(), cfg)
		require.NoError(t, err)
		require.EqualValues(t, 1200, summary.Sent)
		seen := map[int64]bool{}
		for _, env := range s.replayed(t) {
			seen[env.Origin.Offset] = true
		}
		require.Len(t, seen, 1200, "run again, none is missing")
	})

	t.Run("WhatWasSentAndNotConfirmedIsToldSo", func(t *testing.T) {
		t.Parallel()
		f, s := fake(t)
		dead(t, s.brokers, s.from, 3)
		release := make(chan struct{})
		open := sync.OnceFunc(func() { close(release) })
		t.Cleanup(open)
		ctx, cancel := context.WithCancelCause(t.Context())
		f.ControlKey(kmsg.Produce.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			f.KeepControl()
			cancel(errors.New("SIGTERM"))
			f.SleepControl(func() { <-release })
			return nil, nil, false
		})
		cfg := s.config()
		cfg.Each = func(_ *dlq.Entry, r dlq.Result) {
			require.True(t, r.Unconfirmed)
			require.ErrorContains(t, r.Err, "SIGTERM")
		}
		summary, err := dlq.Replay(ctx, cfg)
		require.EqualError(t, err, "SIGTERM")
		require.EqualValues(t, 3, summary.Failed)
		require.EqualValues(t, 3, summary.Unconfirmed)
		require.Zero(t, summary.Sent)
		open()
	})

	t.Run("ATopicThatIsNotOursToWriteToFailsItsLettersAlone", func(t *testing.T) {
		t.Parallel()
		f, s := fake(t)
		dead(t, s.brokers, s.from, 1200)
		other := s.letter(5000)
		other.Group = "audit"
		topicOf(t, s.brokers, dlq.ReplayTopic(s.from, "audit"), 1)
		s.put(t, "other", other.Append(nil))
		denied := f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: s.again, Err: kerr.TopicAuthorizationFailed, Count: -1})
		cfg := s.config()
		cfg.Each = func(e *dlq.Entry, r dlq.Result) {
			if e.Envelope.Group == "billing" {
				require.ErrorIs(t, r.Err, kerr.TopicAuthorizationFailed)
			}
		}
		summary, err := dlq.Replay(t.Context(), cfg)
		require.NoError(t, err)
		require.EqualValues(t, 1200, summary.Failed)
		require.EqualValues(t, 1, summary.Sent)
		require.NotZero(t, denied.Hits())
	})

	t.Run("OneWithoutAReplayTopicDoesNotStopTheOthers", func(t *testing.T) {
		t.Parallel()
		_, s := fake(t)
		topicOf(t, s.brokers, s.from, 1)
		dead(t, s.brokers, s.from, 5)
		gone, nowhere := s.letter(5000), s.letter(5001)
		gone.Group, nowhere.Origin.Topic = "gone", "a-source-that-was-deleted"
		s.put(t, "gone", gone.Append(nil))
		s.put(t, "nowhere", nowhere.Append(nil))
		for i := range int64(5) {
			s.put(t, "later", s.letter(6000+i).Append(nil))
		}
		for _, create := range []bool{false, true} {
			var failed []string
			cfg := s.config()
			cfg.Create = create
			cfg.Each = func(e *dlq.Entry, r dlq.Result) {
				if r.Err != nil {
					failed = append(failed, string(e.Value))
				}
			}
			for _, cfg.DryRun = range []bool{true, false} {
				failed = nil
				summary, err := dlq.Replay(t.Context(), cfg)
				require.NoError(t, err)
				if create {
					require.Equal(t, []string{"nowhere"}, failed)
					require.EqualValues(t, 11, summary.Sent)
				} else {
					require.Equal(t, []string{"gone", "nowhere"}, failed)
					require.EqualValues(t, 10, summary.Sent)
				}
			}
		}
	})

	t.Run("AReplayTopicIsMadeAsItsConsumerWantsIt", func(t *testing.T) {
		t.Parallel()
		for name, test := range map[string]struct {
			letters, poison []string // configs
			retention       time.Duration
			room            int
		}{
			"KeptForEver":   {letters: []string{"retention.ms", "-1", "max.message.bytes", "5000000"}, retention: kafka.Forever, room: 5_000_000},
			"KeptForAMonth": {letters: []string{"retention.ms", "2592000000", "max.message.bytes", "3000000"}, retention: 720 * time.Hour, room: 3_000_000},
			// The letters of another system, whose topic the consumer does not know: it has, or will have, one of its own.
			"Foreign":           {letters: []string{"retention.ms", "2592000000", "max.message.bytes", "3000000"}, poison: []string{"retention.ms", "3600000", "max.message.bytes", "1000"}, retention: 720 * time.Hour, room: 3_000_000},
			"ForeignBeforeOurs": {poison: []string{"retention.ms", "3600000"}, retention: 14 * 24 * time.Hour, room: 1_048_588 + dlq.MaxEnvelope},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				brokers := kafkatest.Fake(t).ListenAddrs()
				kafkatest.CreateTopic(t, brokers, "orders", 2)
				cfg := dlq.ReplayConfig{Read: dlq.ReadConfig{Client: clientOf(brokers), Topic: "orders.dlq"}, Create: true, Route: "post", Group: "billing"}
				if test.letters != nil {
					kafkatest.CreateTopic(t, brokers, "orders.dlq", 2, test.letters...)
				}
				s := scene{brokers, "orders", "orders.dlq", "orders.billing.replay"}
				if test.poison != nil {
					kafkatest.CreateTopic(t, brokers, "poison", 1, test.poison...)
					cfg.Read.Topic, s.dead = "poison", "poison"
					s.put(t, "p", []record.Header{{Key: "reason_poisoned", Value: []byte("boom")}, {Key: "topic_poisoned", Value: []byte("orders")}})
				} else {
					s.put(t, "v", s.letter(0).Append(nil))
				}
				var several sync.WaitGroup
				for range 3 {
					several.Go(func() {
						summary, err := dlq.Replay(t.Context(), cfg)
						if err != nil || summary.Sent != 1 {
							t.Errorf("%+v: %v", summary, err)
						}
					})
				}
				several.Wait()
				made, err := adminOf(t, brokers).Topic(t.Context(), s.again)
				require.NoError(t, err)
				require.Equal(t, test.retention, made.Retention)
				require.Equal(t, test.room, made.MaxMessageBytes)
				require.Equal(t, 2, made.Partitions)
			})
		}
	})

	t.Run("WhatTheNextBatchWouldMeetTooStopsIt", func(t *testing.T) {
		t.Parallel()
		f, s := fake(t)
		dead(t, s.brokers, s.from, 1200)
		denied := f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.ClusterAuthorizationFailed, Count: -1})
		summary, err := dlq.Replay(t.Context(), s.config())
		require.ErrorIs(t, err, kerr.ClusterAuthorizationFailed)
		require.ErrorContains(t, err, s.again)
		require.EqualValues(t, 500, summary.Failed)
		require.EqualValues(t, 500, summary.Matched)
		require.Zero(t, summary.Sent)
		require.NotZero(t, denied.Hits())
	})

	t.Run("AReplayTopicIsNoPlaceToReplayFrom", func(t *testing.T) {
		t.Parallel()
		_, s := fake(t)
		r := &kgo.Record{Topic: s.again}
		for _, h := range s.letter(0).Append(nil) {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		kafkatest.Produce(t, s.brokers, r)
		cfg := s.config()
		cfg.Read.Topic = s.again
		cfg.Each = func(_ *dlq.Entry, r dlq.Result) {
			require.ErrorContains(t, r.Err, "it stands in the topic that it would be replayed to")
		}
		summary, err := dlq.Replay(t.Context(), cfg)
		require.NoError(t, err)
		require.EqualValues(t, 1, summary.Failed)
		require.Len(t, s.replayed(t), 1)
	})

	t.Run("AForgedNameIsNoTopic", func(t *testing.T) {
		t.Parallel()
		_, s := fake(t)
		for _, change := range []func(*dlq.Envelope){
			func(e *dlq.Envelope) { e.Origin.Topic = "a/b" },
			func(e *dlq.Envelope) { e.Group = strings.Repeat("g", 249) },
		} {
			env := s.letter(0)
			change(&env)
			s.put(t, env.Group, env.Append(nil))
		}
		cfg := s.config()
		cfg.Each = func(_ *dlq.Entry, r dlq.Result) {
			require.ErrorContains(t, r.Err, "no legal name for a replay topic")
			require.NotContains(t, r.Err.Error(), "\x1b")
		}
		summary, err := dlq.Replay(t.Context(), cfg)
		require.NoError(t, err)
		require.EqualValues(t, 2, summary.Failed)

		env := s.letter(1)
		env.Group = "\x1b[2J" // a group may have such a name: its replay topic has another
		s.put(t, "", env.Append(nil))
		cfg.Read.Filter.At = []dlq.Coordinates{env.Origin}
		cfg.Each = func(_ *dlq.Entry, r dlq.Result) {
			require.ErrorIs(t, r.Err, kafka.ErrUnknownTopic)
			require.NotContains(t, r.Err.Error(), "\x1b")
		}
		summary, err = dlq.Replay(t.Context(), cfg)
		require.NoError(t, err)
		require.EqualValues(t, 1, summary.Failed)
	})

	t.Run("AMisspeltRouteIsNoDestination", func(t *testing.T) {
		t.Parallel()
		_, s := fake(t)
		dead(t, s.brokers, s.from, 2)
		s.put(t, "spring", sprung())
		asked := 0
		cfg := s.config()
		cfg.Source, cfg.Group, cfg.Route = s.from, "billing", "psot"
		cfg.Known = func(_ context.Context, group, route string) (bool, error) {
			asked++
			require.Equal(t, "billing", group)
			return route == "post", nil
		}
		cfg.Each = func(e *dlq.Entry, r dlq.Result) {
			if e.Format == dlq.FormatSpring {
				var unknown *dlq.UnknownRouteError
				require.ErrorAs(t, r.Err, &unknown)
				require.Equal(t, "psot", unknown.Route)
			}
		}
		summary, err := dlq.Replay(t.Context(), cfg)
		require.NoError(t, err)
		require.EqualValues(t, 2, summary.Sent)
		require.EqualValues(t, 1, summary.Failed)
		require.Equal(t, 2, asked, "once for each route")

		cfg.Known = func(context.Context, string, string) (bool, error) { return false, errBoom }
		_, err = dlq.Replay(t.Context(), cfg)
		require.ErrorIs(t, err, errBoom)
	})

	t.Run("TheLettersOfARenamedRouteGoToItsNewName", func(t *testing.T) {
		t.Parallel()
		_, s := fake(t)
		dead(t, s.brokers, s.from, 2)
		cfg := s.config()
		cfg.ToRoute = "posting"
		_, err := dlq.Replay(t.Context(), cfg)
		require.ErrorContains(t, err, `ToRoute "posting" wants the one route in Filter.Routes`)
		cfg.Read.Filter.Routes = []string{"post"}
		_, err = dlq.Replay(t.Context(), cfg)
		require.NoError(t, err)
		for _, env := range s.replayed(t) {
			require.Equal(t, "posting", env.Route)
		}
	})

	t.Run("NonsenseIsRefused", func(t *testing.T) {
		t.Parallel()
		_, s := fake(t)
		cfg := s.config()
		cfg.MaxReplays = -1
		_, err := dlq.Replay(t.Context(), cfg)
		require.ErrorContains(t, err, "MaxReplays -1 is negative")
		cfg = s.config()
		cfg.Timeout = time.Millisecond
		_, err = dlq.Replay(t.Context(), cfg)
		require.ErrorContains(t, err, "Timeout 1ms is below 1s")
		cfg = s.config()
		cfg.Read.Filter.Reasons = []dlq.Reason{"tired"}
		_, err = dlq.Replay(t.Context(), cfg)
		require.ErrorContains(t, err, "one of permanent")
	})
}

package dlq_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// dead writes letters of a source topic, offsets 0 to n-1.
func dead(t *testing.T, brokers []string, from string, n int) {
	t.Helper()
	w := writer(t, dlq.WriterConfig{Client: clientOf(brokers)})
	var writes sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		writes.Go(func() {
			r := &record.Record{Topic: from, Offset: int64(i), Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i)}
			errs[i] = w.Write(t.Context(), letterOf(r))
		})
	}
	writes.Wait()
	require.NoError(t, errors.Join(errs...))
}

// scene is a source topic with its dead letter topic and the replay topic of the group "billing".
type scene struct {
	brokers           []string
	from, dead, again string
}

func newScene(t *testing.T, brokers []string, partitions int, configs ...string) scene {
	t.Helper()
	from := source(t, brokers, partitions)
	s := scene{brokers, from, dlq.DefaultTopic(from), dlq.ReplayTopic(from, "billing")}
	topicOf(t, brokers, s.again, partitions, configs...)
	return s
}

func (s scene) config() dlq.ReplayConfig {
	return dlq.ReplayConfig{Read: dlq.ReadConfig{Client: clientOf(s.brokers), Topic: s.dead}}
}

// put writes a letter as it is into the dead letter topic.
func (s scene) put(t *testing.T, value string, hs []record.Header) {
	t.Helper()
	r := &kgo.Record{Topic: s.dead, Value: []byte(value)}
	for _, h := range hs {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	kafkatest.Produce(t, s.brokers, r)
}

// letter is an envelope of the scene's source.
func (s scene) letter(offset int64) dlq.Envelope {
	env := full()
	env.Origin = dlq.Coordinates{Topic: s.from, Offset: offset}
	return env
}

// replayed decodes what stands in the replay topic.
func (s scene) replayed(t *testing.T) []dlq.Envelope {
	t.Helper()
	var envs []dlq.Envelope
	for _, r := range kafkatest.ReadAll(t, s.brokers, s.again) {
		env, _, ok := dlq.Decode(headers(r))
		require.True(t, ok)
		envs = append(envs, env)
	}
	return envs
}

// TestReplay is the suite that the fake broker and the real one pass.
func TestReplay(t *testing.T) {
	t.Parallel()
	for kind, brokers := range map[string]func(*testing.T) []string{
		"Fake": func(t *testing.T) []string { t.Helper(); return kafkatest.Fake(t).ListenAddrs() },
		"Real": func(t *testing.T) []string { t.Helper(); return kafkatest.Real(t).Brokers() },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for name, test := range replayTests {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, brokers(t))
				})
			}
		})
	}
}

var replayTests = map[string]func(t *testing.T, brokers []string){
	"TheRecordGoesBackAsItWasWithOneReplayMore": func(t *testing.T, brokers []string) {
		s := newScene(t, brokers, 3)
		w := writer(t, dlq.WriterConfig{Client: clientOf(brokers)})
		records := []*record.Record{
			{Partition: 0}, // a tombstone without a key
			{Partition: 2, Key: []byte{}, Value: []byte{}},
			{Partition: 1, Key: []byte{0xff}, Value: []byte{0}, Headers: []record.Header{
				{Key: "headrace-route", Value: []byte("mine")}, {Key: "a"}, {Key: "a", Value: []byte{}}, {Key: "a", Value: []byte{0xff}}, {},
			}},
			{Partition: 7, Key: []byte("k")}, // there is none of this number
		}
		want := map[int64]*record.Record{}
		for i, r := range records {
			r.Topic, r.Offset, r.TopicID, r.Timestamp = s.from, int64(i), uuid.New(), time.UnixMilli(int64(i)).UTC()
			r.Identity = record.Identity{ID: fmt.Sprint("order-", i), Key: uuid.New()}
			want[r.Offset] = r
			require.NoError(t, w.Write(t.Context(), letterOf(r)))
		}
		summary, err := dlq.Replay(t.Context(), s.config())
		require.NoError(t, err)
		require.EqualValues(t, 4, summary.Sent)
		require.EqualValues(t, 4, summary.Matched)
		require.Equal(t, map[string]int64{s.again: 4}, summary.ByTopic)
		got := kafkatest.ReadAll(t, brokers, s.again)
		require.Len(t, got, 4)
		for _, r := range got {
			env, original, ok := dlq.Decode(headers(r))
			require.True(t, ok)
			was := want[env.Origin.Offset]
			require.Equal(t, was.Key, r.Key)
			require.Equal(t, was.Value, r.Value)
			require.Equal(t, was.Headers, original)
			require.Equal(t, was.TopicID, env.TopicID)
			require.Equal(t, was.Timestamp, env.Timestamp)
			require.Equal(t, was.Identity.Key, env.MessageID)
			require.Equal(t, was.Identity.ID, env.Identity())
			require.Equal(t, 1, env.Replays)
			require.Equal(t, "post", env.Route)
			if was.Partition < 3 {
				require.Equal(t, was.Partition, r.Partition)
			}
		}
		require.Len(t, kafkatest.ReadAll(t, brokers, s.dead), 4, "nothing is deleted")
	},

	"OneThatCannotBeSentIsToldAndTheOthersGo": func(t *testing.T, brokers []string) {
		s := newScene(t, brokers, 1, "max.message.bytes", "20000")
		w := writer(t, dlq.WriterConfig{Client: clientOf(brokers)})
		for i := range 100 {
			r := &record.Record{Topic: s.from, Offset: int64(i), Value: noise(t, 100)}
			if i == 50 {
				r.Value = noise(t, 30_000)
			}
			require.NoError(t, w.Write(t.Context(), letterOf(r)))
		}
		cfg := s.config()
		var failed []string
		var order []int64
		cfg.Each = func(e *dlq.Entry, r dlq.Result) {
			order = append(order, e.Offset)
			if r.Err != nil {
				require.ErrorIs(t, r.Err, kerr.MessageTooLarge)
				require.False(t, r.Sent)
				require.False(t, r.Unconfirmed)
				failed = append(failed, e.Envelope.Origin.String())
			}
		}
		summary, err := dlq.Replay(t.Context(), cfg)
		require.NoError(t, err)
		require.Equal(t, []string{s.from + "/0/50"}, failed)
		require.EqualValues(t, 99, summary.Sent)
		require.EqualValues(t, 1, summary.Failed)
		require.EqualValues(t, 100, summary.Matched)
		require.True(t, slices.IsSorted(order))
		require.Len(t, kafkatest.ReadAll(t, brokers, s.again), 99)
	},

	"ItEndsAtItsSnapshotAlthoughNewFailuresArrive": func(t *testing.T, brokers []string) {
		s := newScene(t, brokers, 1)
		dead(t, brokers, s.from, 600)
		cfg := s.config()
		late := int64(1000)
		w := writer(t, dlq.WriterConfig{Client: clientOf(brokers)})
		cfg.Each = func(e *dlq.Entry, _ dlq.Result) {
			if e.Offset%100 == 0 {
				late++
				require.NoError(t, w.Write(t.Context(), letterOf(&record.Record{Topic: s.from, Offset: late})))
			}
		}
		summary, err := dlq.Replay(t.Context(), cfg)
		require.NoError(t, err)
		require.EqualValues(t, 600, summary.Sent)
		require.Len(t, s.replayed(t), 600)
	},

	"ADryRunSaysTheSameAndSendsNothing": func(t *testing.T, brokers []string) {
		s := newScene(t, brokers, 2)
		s.put(t, "a", s.letter(0).Append(nil))
		conflict, often := s.letter(1), s.letter(2)
		conflict.Reason, often.Replays = dlq.IDConflict, 10
		s.put(t, "b", conflict.Append(nil))
		s.put(t, "c", often.Append(nil))
		s.put(t, "d", connected())
		cfg := s.config()
		run := func() (dlq.Summary, []string) {
			var told []string
			cfg.Each = func(e *dlq.Entry, r dlq.Result) {
				told = append(told, fmt.Sprint(string(e.Value), " ", r.Topic, " ", r.Sent, " ", r.Skipped, " ", r.Err))
			}
			summary, err := dlq.Replay(t.Context(), cfg)
			require.NoError(t, err)
			return summary, told
		}
		cfg.DryRun = true
		dry, dryTold := run()
		require.Empty(t, kafkatest.ReadAll(t, brokers, s.again))
		cfg.DryRun = false
		wet, wetTold := run()
		require.Len(t, s.replayed(t), 1)
		require.Equal(t, wet, dry)
		require.Equal(t, wetTold, dryTold)
		require.EqualValues(t, 4, wet.Matched)
		require.EqualValues(t, 1, wet.Sent)
		require.EqualValues(t, 1, wet.Failed)
		require.Equal(t, map[dlq.Skip]int64{dlq.SkipIDConflict: 1, dlq.SkipTooOften: 1}, wet.Skipped)
	},

	"TheFilterSaysWhat": func(t *testing.T, brokers []string) {
		s := newScene(t, brokers, 1)
		dead(t, brokers, s.from, 10)
		cfg := s.config()
		cfg.Read.Filter = dlq.Filter{Keys: []string{"k3", "k7"}}
		summary, err := dlq.Replay(t.Context(), cfg)
		require.NoError(t, err)
		require.EqualValues(t, 2, summary.Sent)
		var got []string
		for _, r := range kafkatest.ReadAll(t, brokers, s.again) {
			got = append(got, string(r.Value))
		}
		require.ElementsMatch(t, []string{"v3", "v7"}, got)
	},

	"ARecordWhoseIdentityIsAnothersNeedsANewOneThatStays": func(t *testing.T, brokers []string) {
		s := newScene(t, brokers, 1)
		for i := range int64(2) {
			env := s.letter(i)
			env.Reason = dlq.IDConflict
			s.put(t, fmt.Sprint(i), env.Append(nil))
		}
		cfg := s.config()
		summary, err := dlq.Replay(t.Context(), cfg)
		require.NoError(t, err)
		require.Equal(t, map[dlq.Skip]int64{dlq.SkipIDConflict: 2}, summary.Skipped)
		cfg.NewID = true
		for range 2 {
			summary, err = dlq.Replay(t.Context(), cfg)
			require.NoError(t, err)
			require.EqualValues(t, 2, summary.Sent)
		}
		got := s.replayed(t)
		require.Len(t, got, 4)
		require.Equal(t, got[0].MessageID, got[2].MessageID, "replayed again, it is the same record")
		require.Equal(t, got[1].MessageID, got[3].MessageID)
		require.NotEqual(t, got[0].MessageID, got[1].MessageID)
		require.NotEqual(t, full().MessageID, got[0].MessageID)
		require.Empty(t, got[0].ID)
	},

	"AMissingReplayTopicIsMadeOnRequestOnly": func(t *testing.T, brokers []string) {
		from := source(t, brokers, 2)
		topicOf(t, brokers, from, 3, "max.message.bytes", "300000")
		dead(t, brokers, from, 3)
		cfg := dlq.ReplayConfig{Read: dlq.ReadConfig{Client: clientOf(brokers), Topic: dlq.DefaultTopic(from)}}
		again := dlq.ReplayTopic(from, "billing")
		cfg.Each = func(_ *dlq.Entry, r dlq.Result) {
			var missing *dlq.NoReplayTopicError
			require.ErrorAs(t, r.Err, &missing)
			require.ErrorIs(t, r.Err, kafka.ErrUnknownTopic)
			require.ErrorContains(t, r.Err, again)
			require.ErrorContains(t, r.Err, `the consumers of group "billing" make it when they start, with Config.CreateDeadLetterTopics`)
		}
		summary, err := dlq.Replay(t.Context(), cfg)
		require.NoError(t, err)
		require.EqualValues(t, 3, summary.Failed)
		cfg.Each = nil

		cfg.Create, cfg.DryRun = true, true
		summary, err = dlq.Replay(t.Context(), cfg)
		require.NoError(t, err)
		require.EqualValues(t, 3, summary.Sent)
		_, err = adminOf(t, brokers).Topic(t.Context(), again)
		require.ErrorIs(t, err, kafka.ErrUnknownTopic)

		cfg.DryRun = false
		summary, err = dlq.Replay(t.Context(), cfg)
		require.NoError(t, err)
		require.EqualValues(t, 3, summary.Sent)
		got, err := adminOf(t, brokers).Topic(t.Context(), again)
		require.NoError(t, err)
		require.Equal(t, 3, got.Partitions)
		letters, err := adminOf(t, brokers).Topic(t.Context(), cfg.Read.Topic)
		require.NoError(t, err)
		require.Equal(t, letters.MaxMessageBytes, got.MaxMessageBytes, "what is replayed is the letter as it is")
		require.Len(t, kafkatest.ReadAll(t, brokers, again), 3)
	},

	"ACompactedReplayTopicIsRefused": func(t *testing.T, brokers []string) {
		s := newScene(t, brokers, 1, "cleanup.policy", "compact")
		dead(t, brokers, s.from, 1)
		cfg := s.config()
		cfg.Each = func(_ *dlq.Entry, r dlq.Result) { require.ErrorContains(t, r.Err, "set cleanup.policy=delete") }
		summary, err := dlq.Replay(t.Context(), cfg)
		require.NoError(t, err)
		require.EqualValues(t, 1, summary.Failed)
		require.Empty(t, kafkatest.ReadAll(t, brokers, s.again))
	},

	"LettersOfOtherSystemsGoWhereTheOperatorSays": func(t *testing.T, brokers []string) {
		s := newScene(t, brokers, 3)
		topicOf(t, brokers, s.from, 3)
		relabel := func(hs []record.Header) []record.Header { // of this scene's source
			for i, h := range hs {
				if strings.HasSuffix(h.Key, "topic") || h.Key == "topic_poisoned" {
					hs[i].Value = []byte(s.from)
				}
			}
			return hs
		}
		s.put(t, "watermill", relabel(poisoned()))
		s.put(t, "watermill", relabel(poisoned()))
		s.put(t, "spring", relabel(sprung()))
		s.put(t, "connect", relabel(connected()))
		s.put(t, "unknown", []record.Header{header("a", "b")})
		cfg := s.config()
		var told []string
		cfg.Each = func(e *dlq.Entry, r dlq.Result) { told = append(told, fmt.Sprintf("%s: %v", e.Value, r.Err)) }
		summary, err := dlq.Replay(t.Context(), cfg)
		require.NoError(t, err)
		require.EqualValues(t, 4, summary.Failed)
		require.Equal(t, map[dlq.Skip]int64{dlq.SkipNoLetter: 1}, summary.Skipped, "nobody has said that it is a dead letter")
		require.Contains(t, strings.Join(told, "\n"), "spring: "+s.dead+"/0/2 (spring) names no consumer group")

		cfg.Group, cfg.Source = "billing", s.from
		told = nil
		_, err = dlq.Replay(t.Context(), cfg)
		require.NoError(t, err)
		require.Contains(t, told[0], "names no route")

		cfg.Route, cfg.Read.Filter.Formats = "post", dlq.Formats[:]
		summary, err = dlq.Replay(t.Context(), cfg)
		require.NoError(t, err)
		require.EqualValues(t, 5, summary.Sent)
		source, err := adminOf(t, brokers).Topic(t.Context(), s.from)
		require.NoError(t, err)
		letters, err := adminOf(t, brokers).Topic(t.Context(), s.dead)
		require.NoError(t, err)
		places := map[string]bool{}
		for _, r := range kafkatest.ReadAll(t, brokers, s.again) {
			env, original, ok := dlq.Decode(headers(r))
			require.True(t, ok)
			require.Equal(t, s.from, env.Origin.Topic)
			require.Equal(t, "billing/post", env.Group+"/"+env.Route)
			require.Equal(t, 1, env.Replays)
			require.Equal(t, uuid.Nil, env.MessageID)
			require.Greater(t, env.Timestamp.Year(), 2000)
			require.NotEmpty(t, original)
			places[env.TopicID.String()+env.Origin.String()] = true
			switch string(r.Value) {
			case "spring", "connect":
				require.Equal(t, source.ID, env.TopicID, "the place is the source's")
				require.EqualValues(t, 4711, env.Origin.Offset)
				require.EqualValues(t, 3, env.Origin.Partition)
			default:
				require.Equal(t, letters.ID, env.TopicID, "nobody knows where the record was: the letter's place stands in")
			}
		}
		require.Len(t, places, 4, "no two records may be taken for one; spring's and connect's are one")
	},

	"FiftyPassesThroughDeadLetterAndReplayChangeNothing": func(t *testing.T, brokers []string) {
		s := newScene(t, brokers, 2)
		w := writer(t, dlq.WriterConfig{Client: clientOf(brokers)})
		first := &record.Record{
			Topic: s.from, Partition: 1, Offset: 100, TopicID: uuid.New(), Timestamp: time.UnixMilli(1_700_000_000_000).UTC(),
			Key: []byte{0xff}, Value: []byte{}, Headers: []record.Header{{Key: "headrace-topic", Value: []byte("mine")}, {Key: "a"}, {Key: "a", Value: []byte{}}},
			Identity: record.Identity{ID: "order-17", Key: uuid.New()},
		}
		reader := kafkatest.Client(t, brokers, kgo.ConsumeTopics(s.again), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		cfg := s.config()
		cfg.MaxReplays = 50
		next, sizes := first, []int{}
		for pass := range 50 {
			l := letterOf(next)
			l.FirstFailed, l.LastFailed = first.Timestamp.Add(time.Duration(pass)*time.Hour), first.Timestamp.Add(time.Duration(pass)*time.Hour)
			require.NoError(t, w.Write(t.Context(), l))
			summary, err := dlq.Replay(t.Context(), cfg)
			require.NoError(t, err)
			require.EqualValues(t, 1, summary.Sent, "only the latest letter of a record is replayed")
			require.EqualValues(t, pass, summary.Snapshot.Repeated)

			got := nextOf(t, reader)
			env, original, ok := dlq.Decode(headers(got))
			require.True(t, ok)
			require.Equal(t, first.Key, got.Key)
			require.Equal(t, first.Value, got.Value)
			require.Equal(t, first.Headers, original)
			require.Equal(t, pass+1, env.Replays)
			require.Equal(t, dlq.Coordinates{Topic: s.from, Partition: 1, Offset: 100}, env.Origin)
			require.Equal(t, first.TopicID, env.TopicID)
			require.Equal(t, first.Timestamp, env.Timestamp)
			require.Equal(t, first.Timestamp, env.FirstFailed)
			require.Equal(t, first.Identity.Key, env.MessageID)
			require.Equal(t, "order-17", env.ID)
			require.EqualValues(t, 1, got.Partition)
			if pass > 0 { // the first was not read from a replay topic; what has several digits is not compared
				sizes = append(sizes, size(got)-len(fmt.Sprint(env.Replays))-len(fmt.Sprint(env.Latest.Offset)))
			}
			next = replayedRecord(got, env, original, first.Identity)
		}
		require.Equal(t, slices.Repeat([]int{sizes[0]}, 49), sizes)
		summary, err := dlq.Replay(t.Context(), cfg)
		require.NoError(t, err)
		require.EqualValues(t, 1, summary.Sent, "it died 50 times and was replayed 49 times before")
		require.NoError(t, w.Write(t.Context(), letterOf(next)))
		summary, err = dlq.Replay(t.Context(), cfg)
		require.NoError(t, err)
		require.Equal(t, map[dlq.Skip]int64{dlq.SkipTooOften: 1}, summary.Skipped)
	},
}

// replayedRecord is what the decode layer makes of a record of the replay topic.
func replayedRecord(r *kgo.Record, env dlq.Envelope, original []record.Header, id record.Identity) *record.Record {
	return &record.Record{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Replay: true, Letter: &env,
		Timestamp: env.Timestamp, Key: r.Key, Value: r.Value, Headers: original, Identity: id,
	}
}

package consumer

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

func TestReplay(t *testing.T) {
	t.Parallel()

	t.Run("IsEffectedByItsRouteOnceAndForeignToTheOthers", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		var mended atomic.Bool
		post := effectRoute("post")
		post.Apply = func(ctx context.Context, tx pgx.Tx, e Event[item]) error {
			if !mended.Load() {
				return fault.Permanent(errors.New("not yet"))
			}
			return effect(ctx, tx, "post", e.Data)
		}
		r := b.start(b.config(), post, effectRoute("audit"))
		b.produce(of(item{ID: "order", Kind: "ok"}))
		require.Equal(t, map[record.Outcome]int{record.Dead: 1, record.Effected: 1}, b.outcomes(2))
		letter := b.letter("orders.dlq")
		mended.Store(true)
		b.produce(replayOf(t, letter))
		require.Equal(t, map[record.Outcome]int{record.Effected: 1, record.Foreign: 1}, b.outcomes(2))
		var claimed int
		require.NoError(t, b.pool.QueryRow(t.Context(), `select count(distinct topic_id) from headrace.claim_starts`).Scan(&claimed))
		require.Equal(t, 2, claimed, "a replayed record that takes the process down is found as any other")
		b.produce(replayOf(t, letter))
		again := b.outcomes(2)
		require.Equal(t, 1, again[record.Foreign])
		require.Zero(t, again[record.Dead])
		require.Equal(t, []string{"order"}, b.effects("post"))
		require.Equal(t, []string{"order"}, b.effects("audit"))
		b.eventually("the replay topic is committed too", func() bool { return b.behind() == 0 })
		text := scrape(t, r.c.cfg.Registry)
		require.Contains(t, text, `headrace_replayed_total{outcome="effected",route="post"} 1`+"\n")
		require.Contains(t, text, `headrace_replayed_total{outcome="effected",route="audit"} 0`+"\n")
		require.NotContains(t, text, "foreign")
		r.stop()
		require.EqualValues(t, 1, b.length("orders.dlq"))
	})

	t.Run("ForARouteThatNobodyHasIsNoSilentSuccess", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		post := effectRoute("old-name")
		post.Apply = func(context.Context, pgx.Tx, Event[item]) error { return fault.Permanent(errors.New("never")) }
		r := b.start(b.config(), post)
		b.produce(of(item{ID: "order", Kind: "ok"}))
		require.Equal(t, map[record.Outcome]int{record.Dead: 1}, b.outcomes(1))
		r.stop()
		cfg := b.config()
		reports := make(chan record.Report, 100)
		settle := cfg.Hooks.OnSettle
		cfg.Hooks = &record.Hooks{OnSettle: settle, OnReport: func(i record.Report) { reports <- i }}
		b.start(cfg, effectRoute("post"), effectRoute("audit"))
		b.produce(replayOf(t, b.letter("orders.dlq")), replayOf(t, b.letter("orders.dlq")))
		require.Equal(t, map[record.Outcome]int{record.Foreign: 4}, b.outcomes(4))
		told := <-reports
		require.Equal(t, record.ReportReplayNotTaken, told.Kind)
		require.ErrorContains(t, told.Err, `route "old-name"`)
		require.Contains(t, told.Hint, "--to-route")
		require.Empty(t, reports, "of many letters once, whichever route sees them")
	})

	t.Run("ThatFailsAgainDiesAgainInTheSameTopic", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		post := effectRoute("post")
		post.Apply = func(context.Context, pgx.Tx, Event[item]) error { return fault.Permanent(errors.New("never")) }
		r := b.start(b.config(), post)
		b.produce(of(item{ID: "order", Kind: "ok"}))
		b.outcomes(1)
		b.produce(replayOf(t, b.letter("orders.dlq")))
		require.Equal(t, map[record.Outcome]int{record.Dead: 1}, b.outcomes(1))
		r.stop()
		require.EqualValues(t, 2, b.length("orders.dlq"))
	})

	t.Run("HoldsTheSweepOfTheInbox", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		r := b.start(b.config(), effectRoute("post"))
		b.produce(items("ok", 1)...)
		b.outcomes(1)
		r.stop()
		b.produce(&kgo.Record{Topic: "orders.billing.replay", Value: []byte("{}"), Timestamp: time.UnixMilli(1_700_000_000_000)})
		when, err := r.c.horizon("orders", "orders.billing.replay")(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1_700_000_000_000, when.UnixMilli())
	})
}

// letter is the first record of a dead letter topic.
func (b *bed) letter(topic string) *kgo.Record {
	b.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))
	require.NoError(b.t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	fetches := cl.PollRecords(ctx, 1)
	require.NoError(b.t, fetches.Err())
	return fetches.Records()[0]
}

// replayOf is what a replay writes for a letter.
func replayOf(t *testing.T, letter *kgo.Record) *kgo.Record {
	t.Helper()
	var headers []record.Header
	for _, h := range letter.Headers {
		headers = append(headers, record.Header(h))
	}
	envelope, original, ok := dlq.Decode(headers)
	require.True(t, ok)
	envelope.Replays++
	out := &kgo.Record{Topic: dlq.ReplayTopic("orders", "billing"), Key: letter.Key, Value: letter.Value}
	for _, h := range envelope.Append(original) {
		out.Headers = append(out.Headers, kgo.RecordHeader(h))
	}
	return out
}

func TestReplayTopic(t *testing.T) {
	t.Parallel()

	t.Run("IsCreatedWithRoomAndTimeForEveryLetter", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		r := b.start(b.config(), effectRoute("post"))
		b.produce(items("ok", 1)...)
		b.outcomes(1)
		r.stop()
		admin, err := kafka.NewAdmin(kafka.ClientConfig{Brokers: b.brokers})
		require.NoError(t, err)
		defer admin.Close()
		letters, err := admin.Topic(t.Context(), "orders.dlq")
		require.NoError(t, err)
		replayed, err := admin.Topic(t.Context(), "orders.billing.replay")
		require.NoError(t, err)
		require.Equal(t, 4, replayed.Partitions)
		require.Equal(t, letters.Retention, replayed.Retention)
		require.Equal(t, letters.MaxMessageBytes, replayed.MaxMessageBytes)
		require.Equal(t, "delete", replayed.CleanupPolicy)
	})

	t.Run("IsNotMadeAfterADeadLetterTopicThatMustBeChangedFirst", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		admin, err := kafka.NewAdmin(kafka.ClientConfig{Brokers: b.brokers})
		require.NoError(t, err)
		defer admin.Close()
		require.NoError(t, admin.CreateTopic(t.Context(), kafka.TopicSpec{Name: "orders.dlq", Partitions: 4, Retention: time.Hour}))
		err = b.start(b.config(), effectRoute("post")).ended()
		require.ErrorContains(t, err, "letters are deleted after 1h")
		require.True(t, b.missing("orders.billing.replay"))
	})

	t.Run("IsRefusedWhereItWouldLoseWhatIsReplayed", func(t *testing.T) {
		t.Parallel()
		day := 24 * time.Hour
		want := replayTopic{
			name: "orders.billing.replay", source: kafka.Topic{Name: "orders", Partitions: 4},
			letters: []kafka.Topic{
				{Retention: 14 * day, MaxMessageBytes: 1000, MinISR: 1, CleanupPolicy: "delete"},
				{Retention: 7 * day, MaxMessageBytes: 2000, MinISR: 2, CleanupPolicy: "delete"},
			},
		}
		have := kafka.Topic{Retention: 14 * day, MaxMessageBytes: 2000, MinISR: 2, CleanupPolicy: "delete"}
		require.Empty(t, want.compare(have))
		for text, spoil := range map[string]func(*kafka.Topic){
			"set retention.ms=1209600000": func(k *kafka.Topic) { k.Retention = 13 * day },
			"set max.message.bytes=2000":  func(k *kafka.Topic) { k.MaxMessageBytes = 1999 },
			"set min.insync.replicas=2":   func(k *kafka.Topic) { k.MinISR = 1 },
			"set cleanup.policy=delete":   func(k *kafka.Topic) { k.CleanupPolicy = "compact,delete" },
		} {
			spoilt := have
			spoil(&spoilt)
			ps := want.compare(spoilt)
			require.Len(t, ps, 1)
			require.Contains(t, ps[0].What, `replay topic "orders.billing.replay" of "orders": `)
			require.Equal(t, text, ps[0].Fix)
		}
		want.letters[1].Retention = kafka.Forever
		require.Equal(t, "set retention.ms=-1", want.compare(have)[0].Fix)
	})

	t.Run("OfAnotherGroupIsATopicLikeAnyOtherAndWarnedOf", func(t *testing.T) {
		t.Parallel()
		cfg, route := good(t)
		route.Topic = "orders.shipping.replay"
		c, err := New(cfg, route)
		require.NoError(t, err)
		require.Len(t, warnings(c.cfg, c.specs), 1)
		require.Contains(t, warnings(c.cfg, c.specs)[0], `route "post" consumes "orders.shipping.replay"`)
	})
}

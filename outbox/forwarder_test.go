package outbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/outbox"
	"github.com/headrace/headrace/record"
)

func TestForwarder(t *testing.T) {
	t.Parallel()

	t.Run("SendsInOrderAndEmptiesTheTable", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, kfake.SeedTopics(4, "t"))
		for i := range 20 {
			for k := range 10 {
				b.publish("t", keyed(fmt.Sprint("k", k), 50*i, 50)...)
			}
		}
		b.forward(b.config())
		b.drained()
		require.Zero(t, requireInOrder(t, b.read("t"), 10, 1000))
		require.Empty(t, noted(b, &b.reports))
		confirmed := 0
		for _, i := range noted(b, &b.forwards) {
			confirmed += i.Confirmed
			require.Zero(t, i.Failed)
		}
		require.Equal(t, 10_000, confirmed)
	})

	t.Run("SeesWhatIsCommittedWhileItIsIdle", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, kfake.SeedTopics(1, "t"))
		cfg := b.config()
		cfg.PollInterval = time.Hour
		f, err := outbox.NewForwarder(b.pool, cfg)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.Run(ctx) }()
		b.publish("t", keyed("k", 0, 1)...)
		b.eventually("sent", func() bool { f.Wake(); return b.waiting() == 0 })
		require.ErrorContains(t, f.Run(ctx), "runs already")
		cancel()
		require.NoError(t, <-ended)
	})

	// What bigserial and a floor would lose, or send first.
	t.Run("ComesBackForTransactionsThatCommitLate", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, kfake.SeedTopics(1, "t"))
		b.forward(b.config())
		late, err := b.pool.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, outbox.Publisher(late).Publish("t", keyed("late", 0, 1)...))
		b.publish("t", keyed("early", 0, 1)...)
		b.drained()
		require.NoError(t, late.Commit(t.Context()))
		b.publish("t", keyed("late", 1, 1)...)
		b.drained()
		require.Zero(t, requireInOrder(t, keyOnly(b.read("t"), "late"), 1, 2))
	})

	t.Run("ATopicThatTakesNothingDoesNotHoldTheOthers", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, kfake.SeedTopics(1, "well", "also-well"))
		b.publish("missing", keyed("m", 0, 100)...)
		b.publish("well", keyed("w", 0, 100)...)
		stop := b.forward(b.config())
		b.eventually("the others go on", func() bool { return b.waiting() == 100 })
		b.publish("also-well", keyed("a", 0, 100)...)
		b.eventually("also new ones", func() bool { return b.waiting() == 100 })
		b.eventually("they are read past its backlog", func() bool {
			var scans int
			require.NoError(t, b.pool.QueryRow(t.Context(), "select idx_scan from pg_stat_user_indexes where indexrelname = 'outbox_topic'").Scan(&scans))
			return scans > 0
		})
		blocked := b.reported(record.ReportOutboxBlocked)
		require.Len(t, blocked, 1)
		require.Equal(t, "missing", blocked[0].Topic)
		require.ErrorIs(t, blocked[0].Err, kerr.UnknownTopicOrPartition)
		kafkatest.CreateTopic(t, b.brokers, "missing", 1)
		b.drained()
		stop()
		require.Zero(t, requireInOrder(t, b.read("missing"), 1, 100))
	})

	t.Run("ATopicThatDoesNotAnswerDoesNotHoldTheOthers", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, kfake.SeedTopics(1, "silent", "well"))
		silent := b.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "silent", Err: kerr.NotEnoughReplicas, Count: -1})
		cfg := b.config()
		cfg.Timeout = time.Minute
		b.publish("silent", keyed("s", 0, 50)...)
		b.forward(cfg)
		b.eventually("the topic was tried", func() bool { return silent.Hits() > 0 })
		b.publish("well", keyed("w", 0, 50)...)
		b.eventually("the other goes on", func() bool { return b.waiting() == 50 })
		silent.Remove()
		b.drained()
		require.Zero(t, requireInOrder(t, b.read("silent"), 1, 50))
	})

	// Each wave of the others waited a second for it, and then left its client for a new one.
	t.Run("ATopicThatDoesNotAnswerCostsTheOthersOneClient", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, kfake.SeedTopics(1, "silent", "well"))
		silent := b.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "silent", Err: kerr.NotEnoughReplicas, Count: -1})
		counted := &door{}
		cfg := b.config()
		cfg.Timeout = time.Minute
		cfg.Client.Dial = counted.dial
		b.publish("silent", keyed("s", 0, 1)...)
		b.forward(cfg)
		b.eventually("the topic was tried", func() bool { return silent.Hits() > 0 })
		const waves = 10
		var before int
		for i := range waves {
			b.publish("well", keyed("w", i, 1)...)
			b.eventually("the other goes on", func() bool { return b.waiting() == 1 })
			if i == 0 {
				before = counted.dials()
			}
		}
		require.Less(t, counted.dials()-before, waves/2)
		silent.Remove()
		b.drained()
		require.Zero(t, requireInOrder(t, b.read("well"), 1, waves))
	})

	t.Run("KeepsTheOrderOfAKeyWhoseEventsAreRefused", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		kafkatest.CreateTopic(t, b.brokers, "small", 2, "max.message.bytes", "2000")
		for i := range 40 {
			msgs := append(keyed("a", 3*i, 3), keyed("b", 3*i, 3)...)
			b.publish("small", msgs...)
		}
		big := keyed("a", 120, 1)[0]
		big.Metadata.Set("noise", noise(3000))
		b.publish("small", append([]*message.Message{big}, keyed("a", 121, 5)...)...)
		cfg := b.config()
		b.forward(cfg)
		b.eventually("all before the large one", func() bool { return b.waiting() == 6 && len(b.reported(record.ReportOutboxBlocked)) == 1 })
		require.ErrorIs(t, b.reported(record.ReportOutboxBlocked)[0].Err, kerr.MessageTooLarge)
		value := "10000"
		_, err := kafkatest.Admin(t, b.brokers).AlterTopicConfigs(t.Context(), maxMessageBytes(value), "small")
		require.NoError(t, err)
		b.drained()
		got := b.read("small")
		require.Zero(t, requireInOrder(t, keyOnly(got, "a"), 1, 126))
		require.Zero(t, requireInOrder(t, keyOnly(got, "b"), 1, 120))
	})

	t.Run("SendsNothingTwiceWhenItIsStopped", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, kfake.SeedTopics(2, "t"))
		b.publish("t", keyed("k", 0, 300)...)
		for b.waiting() > 0 {
			stop := b.forward(b.config())
			before := len(noted(b, &b.forwards))
			b.eventually("something was sent", func() bool { return len(noted(b, &b.forwards)) > before || b.waiting() == 0 })
			stop()
		}
		require.Zero(t, requireInOrder(t, b.read("t"), 1, 300))
	})

	t.Run("RefusesASchemaThatIsNotThisBuilds", func(t *testing.T) {
		t.Parallel()
		f, err := outbox.NewForwarder(pgtest.New(t), outbox.Config{Client: kafka.ClientConfig{Brokers: []string{"127.0.0.1:1"}}})
		require.NoError(t, err)
		require.ErrorIs(t, f.Run(t.Context()), migrations.ErrVersion)
	})

	t.Run("ImpossibleConfigurationsAreRefused", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		for want, change := range map[string]func(*outbox.Config){
			"no brokers":                       func(c *outbox.Config) { c.Client = kafka.ClientConfig{} },
			"MaxBatch -1 is not between 1 and": func(c *outbox.Config) { c.MaxBatch = -1 },
			"PollInterval 1µs is below 1ms":    func(c *outbox.Config) { c.PollInterval = time.Microsecond },
			"Timeout 1ms is below 1s":          func(c *outbox.Config) { c.Timeout = time.Millisecond },
			"Lease 1ms is below 1s":            func(c *outbox.Config) { c.Lease = time.Millisecond },
			"Grace -1s is below 0s":            func(c *outbox.Config) { c.Grace = -time.Second },
			"AlarmRows -1 is negative":         func(c *outbox.Config) { c.AlarmRows = -1 },
		} {
			cfg := b.config()
			change(&cfg)
			_, err := outbox.NewForwarder(b.pool, cfg)
			require.ErrorContains(t, err, want)
		}
	})
}

func TestForwarderFailures(t *testing.T) {
	t.Parallel()

	t.Run("BrokersThatAreAwayLoseNothing", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, kfake.SeedTopics(3, "t"))
		proxied := &door{}
		cfg := b.config()
		cfg.Client.Dial = proxied.dial
		cfg.AlarmAge = time.Nanosecond
		b.forward(cfg)
		b.publish("t", keyed("a", 0, 100)...)
		b.drained()
		proxied.shut()
		for i := range 20 {
			b.publish("t", append(keyed("a", 100+50*i, 50), keyed("b", 50*i, 50)...)...)
		}
		b.eventually("the alarm", func() bool { return len(b.reported(record.ReportOutboxBehind)) == 1 })
		b.eventually("the size is told", func() bool {
			sizes := noted(b, &b.sizes)
			last := sizes[len(sizes)-1]
			return last.Rows == 2000 && last.Bytes > 2000 && last.Oldest > 0
		})
		require.Equal(t, 2000, b.waiting())
		proxied.open()
		b.drained()
		got := b.read("t")
		requireInOrder(t, keyOnly(got, "a"), 1, 1100)
		requireInOrder(t, keyOnly(got, "b"), 1, 1000)
	})

	t.Run("ATopicThatIsCreatedAgainIsWrittenTo", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, kfake.SeedTopics(1, "t"))
		b.forward(b.config())
		b.publish("t", keyed("k", 0, 10)...)
		b.drained()
		require.NoError(t, b.fake.DeleteTopic("t"))
		require.NoError(t, b.fake.CreateTopic("t", 1, nil))
		b.publish("t", keyed("k", 10, 10)...)
		b.drained()
		require.Len(t, b.read("t"), 10, "its sender knew the topic that was there before")
	})

	t.Run("WhoHasLostItsTurnNoLongerTellsWhatWaits", func(t *testing.T) {
		t.Parallel()
		b := newBed(t) // without the topic
		b.publish("t", keyed("k", 0, 100)...)
		rows := func() int64 {
			sizes := noted(b, &b.sizes)
			if len(sizes) == 0 {
				return -1
			}
			return sizes[len(sizes)-1].Rows
		}
		b.forward(b.config())
		b.eventually("the size is told", func() bool { return rows() == 100 })
		_, err := b.pool.Exec(t.Context(), "update headrace.outbox_lease set holder = gen_random_uuid(), expires = 'infinity'")
		require.NoError(t, err)
		b.eventually("it is not told any more", func() bool { return rows() == 0 })
		require.Equal(t, 100, b.waiting())
	})

	t.Run("RefusalsInTheMiddleLoseNothing", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, kfake.SeedTopics(1, "t"))
		b.publish("t", keyed("k", 0, 10)...)
		stop := b.forward(b.config())
		b.drained()
		stop()
		refused := b.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidRecord, Count: 3})
		b.publish("t", keyed("k", 10, 90)...)
		b.forward(b.config())
		b.drained()
		require.Equal(t, 3, refused.Hits())
		require.Zero(t, requireInOrder(t, b.read("t"), 1, 100))
	})

	// The crash between the confirmation and the deletion.
	t.Run("WhatIsSentTwiceHasTheSameIds", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, kfake.SeedTopics(1, "t"))
		b.publish("t", keyed("k", 0, 100)...)
		proxy := pgtest.NewProxy(t, b.dsn)
		cut := proxy.Always(pgtest.SQL("delete from headrace.outbox"), pgtest.CutBefore)
		stop := b.forwardFrom(pgtest.Pool(t, proxy.DSN()), b.config())
		b.eventually("it is reported", func() bool { return len(b.reported(record.ReportOutboxUnreadable)) == 1 })
		proxy.Down() // it dies with what it has confirmed
		stop()
		cut()
		b.forward(b.config())
		b.drained()
		require.Positive(t, requireInOrder(t, b.read("t"), 1, 100))
	})

	t.Run("ALostReplyToTheDeletionSendsNothingTwice", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, kfake.SeedTopics(1, "t"))
		b.publish("t", keyed("k", 0, 3000)...)
		proxy := pgtest.NewProxy(t, b.dsn)
		lost := proxy.Once(pgtest.SQL("delete from headrace.outbox"), pgtest.CutReply)
		b.forwardFrom(pgtest.Pool(t, proxy.DSN()), b.config())
		b.drained()
		<-lost
		require.Zero(t, requireInOrder(t, b.read("t"), 1, 3000))
	})

	t.Run("TheDatabaseAwayIsWaitedFor", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, kfake.SeedTopics(1, "t"))
		proxy := pgtest.NewProxy(t, b.dsn)
		b.forwardFrom(pgtest.Pool(t, proxy.DSN()), b.config())
		b.publish("t", keyed("k", 0, 10)...)
		b.drained()
		proxy.Down()
		b.publish("t", keyed("k", 10, 10)...)
		b.eventually("it is reported", func() bool { return len(b.reported(record.ReportOutboxUnreadable)) > 0 })
		require.NoError(t, proxy.Accept())
		b.drained()
		requireInOrder(t, b.read("t"), 1, 20)
	})
}

// Several forwarders, of which each believes that it is alone: paused, killed and begun anew. What two of them send twice
// has one id, and first writes keep the order of their keys.
func TestForwarderSeveralAtOnce(t *testing.T) {
	t.Parallel()
	const keys, rounds = 8, 60
	b := newBed(t, kfake.SeedTopics(3, "t"))
	ctx, cancel := context.WithCancel(t.Context())
	var all, writers sync.WaitGroup
	for range 3 {
		proxy := pgtest.NewProxy(t, b.dsn)
		pool := pgtest.Pool(t, proxy.DSN())
		all.Go(func() {
			for ctx.Err() == nil {
				f, err := outbox.NewForwarder(pool, b.config())
				require.NoError(t, err)
				outbox.Unfence(f)
				life, kill := context.WithTimeout(ctx, time.Duration(rand.IntN(300))*time.Millisecond)
				require.NoError(t, f.Run(life))
				kill()
				proxy.CutAll()
			}
		})
	}
	var committed [keys]atomic.Int64
	for k := range keys {
		writers.Go(func() {
			for range rounds {
				first, n := int(committed[k].Load()), 1+rand.IntN(10)
				err := b.inTx(func(tx pgx.Tx) error {
					if err := outbox.Publisher(tx).Publish("t", keyed(fmt.Sprint("k", k), first, n)...); err != nil {
						return err
					}
					if rand.IntN(5) == 0 {
						return context.Canceled
					}
					return nil
				})
				if err == nil {
					committed[k].Add(int64(n))
				}
			}
		})
	}
	writers.Wait()
	b.drained()
	cancel()
	all.Wait()
	got := b.read("t")
	for k := range keys {
		requireInOrder(t, keyOnly(got, fmt.Sprint("k", k)), 1, int(committed[k].Load()))
	}
}

// Of several forwarders one sends, and another one goes on when it is gone.
func TestForwarderTakesTurns(t *testing.T) {
	t.Parallel()
	b := newBed(t, kfake.SeedTopics(1, "t"))
	cfg := b.config()
	cfg.Lease = 6 * time.Second // on a busy machine a short one is lost
	stops := []func(){b.forward(cfg), b.forward(cfg), b.forward(cfg)}
	for i, stop := range stops {
		b.publish("t", keyed("k", 100*i, 100)...)
		b.drained()
		stop()
	}
	require.Zero(t, requireInOrder(t, b.read("t"), 1, 300))
}

func noise(n int) string {
	var text strings.Builder
	for text.Len() < n {
		fmt.Fprintf(&text, "%016x", rand.Uint64())
	}
	return text.String()
}

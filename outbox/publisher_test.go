package outbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/outbox"
	"github.com/headrace/headrace/record"
)

func TestPublisher(t *testing.T) {
	t.Parallel()

	t.Run("PublishesIfTheTransactionCommitsAndOnlyThen", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.publish("t", keyed("k", 0, 2)...)
		require.Equal(t, 2, b.waiting())
		err := b.inTx(func(tx pgx.Tx) error {
			require.NoError(t, outbox.Publisher(tx).Publish("t", keyed("k", 2, 1)...))
			return errors.New("boom")
		})
		require.Error(t, err)
		require.Equal(t, 2, b.waiting())
	})

	t.Run("WritesTheRecordThatAPublisherOfKafkaWrites", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, kfake.SeedTopics(1, "by-outbox", "by-publisher"))
		msgs := []*message.Message{
			message.NewMessage("id-1", []byte("payload")), message.NewMessage("id-2", nil), message.NewMessage("id-3", []byte{}),
		}
		msgs[0].Metadata = message.Metadata{"z": "last", "a": "first", "empty": ""}
		kafka.SetKey(msgs[0], []byte{0xff, 0})
		kafka.SetKey(msgs[1], nil)
		pub, err := kafka.NewPublisher(kafka.PublisherConfig{Client: b.config().Client})
		require.NoError(t, err)
		defer func() { require.NoError(t, pub.Close()) }()
		require.NoError(t, pub.Publish("by-publisher", msgs...))

		b.publish("by-outbox", msgs...)
		b.forward(b.config())
		b.drained()
		want, got := b.read("by-publisher"), b.read("by-outbox")
		require.Len(t, got, len(want))
		for i := range want {
			require.Equal(t, parts(want[i]), parts(got[i]))
		}
	})

	t.Run("WorksInEachOfPgxExecModes", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up)
		for _, mode := range []pgx.QueryExecMode{
			pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
			pgx.QueryExecModeSimpleProtocol,
		} {
			cfg, err := pgxpool.ParseConfig(dsn)
			require.NoError(t, err)
			cfg.ConnConfig.DefaultQueryExecMode = mode
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			require.NoError(t, err)
			tx, err := pool.Begin(t.Context())
			require.NoError(t, err)
			require.NoError(t, outbox.Publisher(tx).Publish("t", message.NewMessage("1", nil)), mode)
			require.NoError(t, outbox.Publisher(tx).Publish("t", keyed("k", 0, 3)...), mode)
			batch := &pgx.Batch{}
			require.NoError(t, outbox.Queue(batch, "t", message.NewMessage("2", []byte("\x00\xff'"))))
			require.NoError(t, tx.SendBatch(t.Context(), batch).Close(), mode)
			var nulls, rows int
			var value []byte
			require.NoError(t, tx.QueryRow(t.Context(), `select sum(events), count(*) filter (where key is null and value is null and events = 1),
				(select value from headrace.outbox where message_id = '2') from headrace.outbox`).Scan(&rows, &nulls, &value))
			require.Equal(t, []int{5, 1}, []int{rows, nulls}, mode)
			require.Equal(t, "\x00\xff'", string(value), mode)
			require.NoError(t, tx.Rollback(t.Context()))
			pool.Close()
		}
	})

	t.Run("GivesAnIdToAMessageWithoutOne", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.publish("t", message.NewMessage("", nil))
		b.publish("t", message.NewMessage("", nil))
		var ids, shortest int
		require.NoError(t, b.pool.QueryRow(t.Context(), "select count(distinct message_id), min(length(message_id)) from headrace.outbox").
			Scan(&ids, &shortest))
		require.Equal(t, []int{2, 36}, []int{ids, shortest})
	})

	t.Run("KeepsNothingOfAMessageThatItsMakerMayChange", func(t *testing.T) {
		t.Parallel()
		payload := []byte("before")
		batch := &pgx.Batch{}
		require.NoError(t, outbox.Queue(batch, "t", message.NewMessage("1", payload)))
		copy(payload, "after!")
		b := newBed(t)
		require.NoError(t, b.pool.SendBatch(t.Context(), batch).Close())
		var value []byte
		require.NoError(t, b.pool.QueryRow(t.Context(), "select value from headrace.outbox").Scan(&value))
		require.Equal(t, "before", string(value))
	})

	t.Run("RefusesWhatCouldNeverBeSent", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		reserved, batch := message.NewMessage("1", nil), message.NewMessage("1", nil)
		reserved.Metadata.Set(record.UUIDHeader, "forged")
		batch.Metadata.Set(record.CountKey, "2")
		ok := message.NewMessage("1", nil)
		for _, bad := range []struct {
			topic string
			msg   *message.Message
			want  string
		}{
			{"", ok, `topic "" is no name`},
			{"..", ok, `topic ".." is no name`},
			{"a b", ok, `topic "a b" has characters`},
			{strings.Repeat("a", 250), ok, "250 characters"},
			{"t", nil, "it is nil"},
			{"t", reserved, "reserved"},
			{"t", batch, "carries 2 records"},
			{"t", message.NewMessage(strings.Repeat("a", 1025), nil), "1025 bytes"},
			{"t", message.NewMessage("a\x00", nil), "no text"},
			{"t", message.NewMessage("\xff", nil), "no text"},
			{"t", message.NewMessage("1", make([]byte, outbox.MaxBytes)), "more than 1000000"},
		} {
			err := b.inTx(func(tx pgx.Tx) error { return outbox.Publisher(tx).Publish(bad.topic, ok, bad.msg) })
			require.ErrorIs(t, err, outbox.ErrEvent, bad.want)
			require.ErrorContains(t, err, bad.want)
			require.Equal(t, fault.ClassPermanent, classify(err))
		}
		require.Zero(t, b.waiting())
	})

	t.Run("SaysWhereItsTransactionComesFrom", func(t *testing.T) {
		t.Parallel()
		err := outbox.Publisher(nil).Publish("t", message.NewMessage("1", nil))
		require.ErrorContains(t, err, "was given no transaction")
		require.Equal(t, fault.ClassPermanent, classify(err))
		require.NoError(t, outbox.Publisher(nil).Close())
	})
}

func classify(err error) fault.Class {
	return (&fault.Classifier{}).Classify(context.Background(), err).Class
}

// parts are what of a record its producer decides.
func parts(r *kgo.Record) []any { return []any{r.Key, r.Value, r.Headers, r.Partition, r.Offset} }

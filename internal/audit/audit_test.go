package audit

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const partitions = 4

// filled is a topic of n records that route r of group g has effected, and what to audit.
func filled(t testing.TB, n int) Config {
	t.Helper()
	brokers, pool := kafkatest.Fake(t).ListenAddrs(), pgtest.New(t, migrations.Up)
	kafkatest.CreateTopic(t, brokers, "orders", partitions)
	client := kafkatest.Client(t, brokers, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	adm := kadm.NewClient(client)
	details, err := adm.ListTopics(t.Context(), "orders")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `insert into headrace.consumers (consumer_group, route) values ('g', 'r')`)
	require.NoError(t, err)
	const batch = 10_000
	for from := 0; from < n; from += batch {
		fill(t, client, pool, uuid.UUID(details["orders"].ID), from, min(from+batch, n))
	}
	offsets := kadm.Offsets{}
	for p := range int32(partitions) {
		offsets.AddOffset("orders", p, int64(n), -1)
	}
	require.NoError(t, adm.CommitAllOffsets(t.Context(), "g", offsets))
	return Config{Client: kafka.ClientConfig{Brokers: brokers}, Pool: pool, Topic: "orders", Group: "g", Routes: []string{"r"}}
}

func fill(t testing.TB, client *kgo.Client, pool *pgxpool.Pool, topicID uuid.UUID, from, to int) {
	t.Helper()
	var records []*kgo.Record
	var rows [][]any
	for i := from; i < to; i++ {
		id, value := "order-"+strconv.Itoa(i), fmt.Appendf(nil, `{"id":%d,"text":"%080d"}`, i, i)
		r := &kgo.Record{Topic: "orders", Partition: int32(i % partitions), Key: []byte(id), Value: value, Headers: []kgo.RecordHeader{{Key: watermillUUID, Value: []byte(id)}}}
		hash, _ := placeOf(topicID, r.Partition, int64(i/partitions))
		records, rows = append(records, r), append(rows, []any{1, keyOf(id).String(), valueHash(value), hash})
	}
	require.NoError(t, client.ProduceSync(t.Context(), records...).FirstErr())
	_, err := pool.CopyFrom(t.Context(), pgx.Identifier{"headrace", "inbox"}, []string{"consumer_id", "message_id", "value_hash", "coordinates"}, pgx.CopyFromRows(rows))
	require.NoError(t, err)
}

// A route whose ids the audit does not find had all its records named lost, once they were more than are kept.
func TestRun_MoreRecordsFoundByTheirPlacesThanAreKept(t *testing.T) {
	t.Parallel()
	const n = 3*chunk + 7
	cfg := filled(t, n)
	_, err := cfg.Pool.Exec(t.Context(), `delete from headrace.inbox where ctid in (select ctid from headrace.inbox limit 5)`)
	require.NoError(t, err)
	cfg.Identity, cfg.kept = Identity{Header: "none"}, 4
	ledgers, err := Run(t.Context(), cfg)
	require.NoError(t, err)
	l := ledgers[0]
	require.Equal(t, []int64{n, n - 5, 5, n - 5}, []int64{l.Records, l.Effected, l.Wrong, l.ByPlace})
	require.Len(t, l.Findings, 5)
}

// A letter that is written between two of the looks would be missing.
func TestRun_WhatComesMeanwhileIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	cfg := filled(t, 1)
	cfg.Letters, cfg.kept = "orders.dlq", maxKept
	kafkatest.CreateTopic(t, cfg.Client.Brokers, cfg.Letters, 1)
	_, err := cfg.Pool.Exec(t.Context(), `update headrace.inbox set state = 2`)
	require.NoError(t, err)
	source, err := dlq.OpenLog(t.Context(), cfg.Client, cfg.Topic, time.Time{})
	require.NoError(t, err)
	defer source.Close()
	a := &auditor{cfg: cfg, topicID: source.ID()}
	require.NoError(t, a.look(t.Context()))
	ends, err := a.readSides(t.Context())
	require.NoError(t, err)
	require.NoError(t, a.scan(t.Context(), source))
	require.Len(t, a.order[0].wrong, 1)

	place := dlq.Coordinates{Topic: "orders"}
	env := dlq.Envelope{Origin: place, Latest: place, TopicID: source.ID(), MessageID: keyOf("order-0"), Group: "g", Route: "r", Reason: dlq.Manual}
	letter := &kgo.Record{Topic: cfg.Letters}
	for _, h := range env.Append(nil) {
		letter.Headers = append(letter.Headers, kgo.RecordHeader(h))
	}
	kafkatest.Produce(t, cfg.Client.Brokers, letter)
	require.NoError(t, a.again(t.Context(), ends))
	l := &a.order[0].ledger
	require.Equal(t, []int64{1, 1, 0}, []int64{l.Records, l.Dead, l.Wrong})
	require.Empty(t, l.Findings)
}

// BenchmarkRun is for -benchtime 400000x: an operation is a record.
func BenchmarkRun(b *testing.B) {
	cfg := filled(b, b.N)
	b.ReportAllocs()
	b.ResetTimer()
	ledgers, err := Run(b.Context(), cfg)
	require.NoError(b, err)
	require.EqualValues(b, b.N, ledgers[0].Effected)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

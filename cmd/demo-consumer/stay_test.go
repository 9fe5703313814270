package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/kafka"
)

// TestStay is a newcomer's evening: a run that stays up, its dead letters replayed, and the second count. The customers
// have paid and the bugs are fixed, so all that can be read and contradicts nothing has its effect now.
func TestStay(t *testing.T) {
	t.Parallel()
	for _, store := range []string{inboxStore, offsetStore} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			evening(t, store)
		})
	}
}

func evening(t *testing.T, store string) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	reports, ended := staying(ctx, t, "-store", store, "-records", "3000", "-pace", "2s", "-outage", "0", "-payments-outage", "0")

	var before, after report
	require.NoError(t, reports.Decode(&before))
	require.True(t, before.Balanced, before.Problems)
	require.NotNil(t, before.Stay)
	sum := replay(ctx, t, before)
	require.Equal(t, int64(before.Dead), sum.Matched)
	require.Equal(t, int64(before.DeadByReason["id_conflict"]), sum.Skipped[dlq.SkipIDConflict])
	interrupt()

	require.NoError(t, reports.Decode(&after))
	require.NoError(t, <-ended)
	require.True(t, after.Balanced, after.Problems)
	hopeless := before.DeadByReason["id_conflict"] + before.DeadByReason["undecodable"]
	require.Equal(t, hopeless, after.Dead)
	require.Equal(t, before.Dead-hopeless, after.Replayed)
	require.Positive(t, after.Replayed)
	require.Equal(t, before.Effected+after.Replayed, after.Effected)
	require.Equal(t, before.Records, after.Records)
	require.Zero(t, after.DoubleCharges, "an order that was charged before it died is not charged again")
	require.Greater(t, after.Charges, before.Charges, "those who had not paid have")
	require.Equal(t, after.Effected, after.Charges)
}

// TestStay_ANewIDIsCountedAsWhatTheOperatorAskedFor is a replay of the orders that contradict earlier ones, beside those.
func TestStay_ANewIDIsCountedAsWhatTheOperatorAskedFor(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	reports, ended := staying(ctx, t, "-records", "4000", "-pace", "1s", "-outage", "0", "-payments-outage", "0")
	var before, after report
	require.NoError(t, reports.Decode(&before))
	require.True(t, before.Balanced, before.Problems)
	require.True(t, strings.HasSuffix(before.Stay.Payments, "/charges"), before.Stay.Payments)
	conflicts := before.DeadByReason["id_conflict"]
	require.Positive(t, conflicts)

	var ids []string
	_, err := dlq.Replay(ctx, dlq.ReplayConfig{
		Read: dlq.ReadConfig{
			Client: kafka.ClientConfig{Brokers: before.Brokers}, Topic: before.DeadLetterTopic,
			Filter: dlq.Filter{Reasons: []dlq.Reason{dlq.IDConflict}},
		},
		NewID: true,
		Each: func(e *dlq.Entry, _ dlq.Result) {
			ids = append(ids, dlq.NewIDAt(e.Envelope.TopicID, e.Envelope.Origin.Partition, e.Envelope.Origin.Offset).String())
		},
	})
	require.NoError(t, err)
	require.Len(t, ids, conflicts)
	db, err := pgxpool.New(ctx, before.DSN)
	require.NoError(t, err)
	defer db.Close()
	require.Eventually(t, func() bool {
		var run int
		err := db.QueryRow(ctx, `select count(*) from headrace.inbox where message_id::text = any($1)`, ids).Scan(&run)
		return err == nil && run == conflicts
	}, 30*time.Second, 50*time.Millisecond)
	interrupt()

	require.NoError(t, reports.Decode(&after))
	require.NoError(t, <-ended)
	require.True(t, after.Balanced, after.Problems)
	require.Zero(t, after.DeadByReason["id_conflict"])
	require.Zero(t, after.DoubleCharges, "nobody asked for those")
	require.Positive(t, after.NewIDs)
	require.Equal(t, before.Records, after.sum())
	require.Equal(t, before.Dead-conflicts, after.Dead)
}

// staying runs the demo with -stay. Its reports can be decoded one after the other.
func staying(ctx context.Context, t *testing.T, args ...string) (*json.Decoder, <-chan error) {
	t.Helper()
	s, err := parse(append([]string{"-json", "-stay"}, args...), t.Output())
	require.NoError(t, err)
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, s, writer, t.Output())
		_ = writer.CloseWithError(err) // or EOF
		ended <- err
	}()
	return json.NewDecoder(reader), ended
}

// replay replays all of a run's dead letters, and waits until each has had an end.
func replay(ctx context.Context, t *testing.T, r report) dlq.Summary {
	t.Helper()
	sum, err := dlq.Replay(ctx, dlq.ReplayConfig{
		Read: dlq.ReadConfig{Client: kafka.ClientConfig{Brokers: r.Brokers}, Topic: r.DeadLetterTopic},
	})
	require.NoError(t, err)
	require.Zero(t, sum.Failed)
	db, err := pgxpool.New(ctx, r.DSN)
	require.NoError(t, err)
	defer db.Close()
	require.Eventually(t, func() bool {
		var taken int64
		err := db.QueryRow(ctx, `select count(*) from headrace.inbox where original is not null`).Scan(&taken)
		return err == nil && taken == sum.Sent
	}, 30*time.Second, 50*time.Millisecond)
	return sum
}

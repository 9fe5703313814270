package outbox_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/headrace/headrace/outbox"
	"github.com/headrace/headrace/record"
)

// BenchmarkForwarder drains b.N events of 100 bytes to 8 partitions of an in-process broker, with the defaults: events that
// were published one a transaction, and 1,000 a transaction, also while somebody keeps a transaction open. events/s is
// what counts. For a million of them:
//
//	go test -run '^$' -bench Forwarder -benchtime 1000000x ./outbox
func BenchmarkForwarder(b *testing.B) {
	for _, fill := range []struct {
		name string
		with func(*bed, int)
	}{{"OneATransaction", fillSingles}, {"1000ATransaction", fillPacks}} {
		b.Run(fill.name+"/Alone", func(b *testing.B) { drain(b, fill.with, false) })
		b.Run(fill.name+"/BesideAnOldTransaction", func(b *testing.B) { drain(b, fill.with, true) })
	}
}

func drain(b *testing.B, fill func(*bed, int), beside bool) {
	b.Helper()
	bed := newBed(b, kfake.SeedTopics(8, "t"))
	fill(bed, b.N)
	if beside {
		old, err := bed.pool.BeginTx(b.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		require.NoError(b, err)
		defer func() { require.NoError(b, old.Rollback(b.Context())) }()
		_, err = old.Exec(b.Context(), "select from headrace.outbox limit 1")
		require.NoError(b, err)
	}
	var sent atomic.Int64
	all := make(chan struct{})
	cfg := outbox.Config{Client: bed.config().Client, Hooks: &record.Hooks{OnForward: func(i record.ForwardInfo) {
		if sent.Add(int64(i.Confirmed)) == int64(b.N) {
			close(all)
		}
	}}}
	b.ResetTimer()
	stop := bed.forward(cfg)
	<-all
	b.StopTimer()
	stop()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	require.Zero(b, bed.waiting())
}

// fillSingles writes the rows that n transactions of one event would.
func fillSingles(b *bed, n int) {
	_, err := b.pool.Exec(b.t.Context(), fmt.Sprintf(`insert into headrace.outbox (topic, key, value, message_id, bytes)
		select 't', convert_to('k' || g %% 100, 'UTF8'), convert_to(repeat('x', 100), 'UTF8'), 'k' || g %% 100 || '-' || g / 100, 200
		from generate_series(0, %d) g`, n-1))
	require.NoError(b.t, err)
}

func fillPacks(b *bed, n int) {
	value := make([]byte, 100)
	for first := 0; first < n; first += 1000 {
		msgs := keyed(fmt.Sprint("k", first/1000%100), first, min(1000, n-first))
		for _, msg := range msgs {
			msg.Payload = value
		}
		b.publish("t", msgs...)
	}
}

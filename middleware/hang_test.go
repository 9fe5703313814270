package middleware_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// TestDecode_Hangs is about what is called before any attempt: a decoder or a resolver that asks somebody, and waits for
// ever.
func TestDecode_Hangs(t *testing.T) {
	t.Parallel()
	for name, hang := range map[string]func(b *bench, wait func(*record.Record)){
		"Decoder": func(b *bench, wait func(*record.Record)) {
			b.rt.Decode = func(r *record.Record) error { wait(r); return nil }
		},
		"Resolver": func(b *bench, wait func(*record.Record)) {
			b.rt.Identity = []dedup.Resolver{func(r *record.Record) (string, bool, error) { wait(r); return "", false, nil }}
		},
	} {
		bubble(t, name+"IsRunningTimeOfTheRecordThatItLooksAt", func(t *testing.T) {
			b, leave := newBench(t), make(chan struct{})
			hang(b, func(r *record.Record) {
				if r.Offset == 1 {
					<-leave
				}
			})
			c := b.claim(t, 1, 10, b.handler(t, nothing))
			rs := recs(3, ownKey)
			c.add(rs...)
			<-time.After(time.Hour) // of virtual time
			since, runs := rs[1].RunningSince()
			require.True(t, runs)
			require.Equal(t, time.Hour, time.Since(since))
			for _, other := range []*record.Record{rs[0], rs[2]} {
				_, runs = other.RunningSince()
				require.False(t, runs, "offset %d", other.Offset)
			}
			close(leave)
			c.idle()
			_, runs = rs[1].RunningSince()
			require.False(t, runs)
		})
	}

	bubble(t, "IsReportedAndEndsTheMembershipAfterMaxPollInterval", func(t *testing.T) {
		b, leave := newBench(t), make(chan struct{})
		b.rt.Decode = func(*record.Record) error { <-leave; return nil }
		h := b.handler(t, nothing)
		src, done := sourceOf(t, b.reports)
		msgs, err := src.Subscriber(kafka.Subscription{AttemptTimeout: time.Second}).Subscribe(t.Context(), "t")
		require.NoError(t, err)
		var served sync.WaitGroup
		served.Go(func() {
			for msg := range msgs {
				_, _ = h(msg) // its record is given back
			}
		})
		<-time.After(70 * time.Second)
		require.ErrorContains(t, src.Live(), "longer than MaxPollInterval 1m0s")
		require.True(t, slices.Contains(b.reports.kinds(), record.ReportStuckRecord))
		<-src.Done() // though the decoder never returned
		close(leave)
		_ = src.Close() // it has failed, and says so again
		served.Wait()
		done()
	})
}

// sourceOf is a member of a group on a broker of its own, in virtual time, whose topic "t" has a record.
func sourceOf(t *testing.T, told *reports) (_ *kafka.Source, done func()) {
	t.Helper()
	var net kfake.VirtualNetwork
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(19300), kfake.SeedTopics(1, "t"), kfake.ListenFn(net.Listen))
	require.NoError(t, err)
	client := kafka.ClientConfig{Brokers: fake.ListenAddrs(), Dial: net.DialContext}
	producer, err := kgo.NewClient(client.Options()...)
	require.NoError(t, err)
	require.NoError(t, producer.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr())
	producer.Close()
	src, err := kafka.NewSource(kafka.SourceConfig{
		Client: client, Group: "g", MaxPollInterval: time.Minute, Hooks: &record.Hooks{OnReport: told.add},
	})
	require.NoError(t, err)
	return src, func() {
		fake.Close()
		<-time.After(time.Minute) // what the fake broker still sleeps on
	}
}

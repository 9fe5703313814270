package parking_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/parking"
)

// BenchmarkStore parks records of their own keys, 500 a transaction, and takes them out again, with two connections, while
// so many others wait. A record has 200 bytes. records/s is what counts.
func BenchmarkStore(b *testing.B) {
	for _, waiting := range []int{0, million} {
		s, pool := newStore(b, parking.Policy{MaxRecords: 1 << 40})
		if waiting > 0 {
			fillWaiting(b, s, pool, waiting)
		}
		var next atomic.Int64
		next.Store(1 << 30)
		b.Run(fmt.Sprintf("In/Waiting%d", waiting), func(b *testing.B) {
			perSecond(b, func() { parkAll(b, s, &next, b.N) })
		})
		b.Run(fmt.Sprintf("Out/Waiting%d", waiting), func(b *testing.B) {
			makeDue(b, pool)
			drainAll(b, s)
			parkAll(b, s, &next, b.N)
			makeDue(b, pool)
			b.ResetTimer()
			perSecond(b, func() { require.Equal(b, b.N, drainAll(b, s)) })
		})
	}
}

func perSecond(b *testing.B, f func()) {
	b.Helper()
	f()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

func parkAll(b *testing.B, s *parking.Store, next *atomic.Int64, n int) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(n))
	both(func() {
		for {
			have := left.Add(-500) + 500
			if have <= 0 {
				return
			}
			es := make([]parking.Entry, min(have, 500))
			for i := range es {
				off := next.Add(1)
				r := rec(fmt.Sprint("key-", off), off)
				r.Value = make([]byte, 200)
				es[i] = head(r)
			}
			if err := s.Park(b.Context(), es); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func drainAll(b *testing.B, s *parking.Store) int {
	b.Helper()
	var n atomic.Int64
	both(func() {
		for {
			l, err := s.Claim(b.Context(), 500)
			if l == nil || err != nil || l.Load(b.Context(), 500, 64<<20) != nil {
				return
			}
			ends := make([]parking.End, len(l.Lines))
			for i, line := range l.Lines {
				ends[i] = settled(line, len(line.Records))
				n.Add(int64(len(line.Records)))
			}
			if _, err := l.Finish(b.Context(), ends); err != nil {
				b.Error(err)
				return
			}
		}
	})
	return int(n.Load())
}

func both(f func()) {
	var wg sync.WaitGroup
	wg.Go(f)
	wg.Go(f)
	wg.Wait()
}

// makeDue makes due what this benchmark has parked: the million waits for a day.
func makeDue(b *testing.B, pool *pgxpool.Pool) {
	b.Helper()
	_, err := pool.Exec(b.Context(), "update headrace.parked_keys set due = now() where due < now() + interval '1 hour'")
	require.NoError(b, err)
	_, err = pool.Exec(b.Context(), "vacuum headrace.parked_keys")
	require.NoError(b, err)
}

func fillWaiting(b *testing.B, s *parking.Store, pool *pgxpool.Pool, n int) {
	b.Helper()
	for _, sql := range []string{
		fmt.Sprintf(`insert into headrace.parked_keys (consumer_id, key_id, due, round)
			select %d, hashint8extended(g, 1), now() + interval '1 day', 1 from generate_series(1, %d) g`, s.Consumer(), n),
		fmt.Sprintf(`insert into headrace.parked_records (consumer_id, key_id, topic_id, part, off, message_id, envelope)
			select %d, hashint8extended(g, 1), '%s', 1, g, gen_random_uuid(), repeat('x', 300)::bytea from generate_series(1, %d) g`,
			s.Consumer(), topicID, n),
		"vacuum analyze headrace.parked_keys", "vacuum analyze headrace.parked_records",
	} {
		_, err := pool.Exec(b.Context(), sql)
		require.NoError(b, err)
	}
}

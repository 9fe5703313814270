package parking_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// program is a Router with one route that parks: a broker, a database, two sources, one stack.
type program struct {
	t       *testing.T
	brokers []string
	topic   string
	pool    *pgxpool.Pool
	store   *parking.Store

	mu       sync.Mutex
	fails    map[string]int // how often each value fails
	settled  map[record.Outcome]int
	outcomes map[int64][]record.Outcome
}

const programTables = `create table effects (seq bigint generated always as identity, value text)`

func newProgram(t *testing.T, p parking.Policy) *program {
	t.Helper()
	p2 := &program{
		t: t, brokers: kafkatest.Fake(t).ListenAddrs(), pool: pgtest.New(t, migrations.Up),
		fails: map[string]int{}, settled: map[record.Outcome]int{}, outcomes: map[int64][]record.Outcome{},
	}
	p2.topic = kafkatest.Topic(t, p2.brokers, 1)
	kafkatest.CreateTopic(t, p2.brokers, p2.topic+".dlq", 1)
	_, err := p2.pool.Exec(t.Context(), programTables)
	require.NoError(t, err)
	p2.start(p)
	return p2
}

func (p *program) start(policy parking.Policy) {
	t := p.t
	client := kafka.ClientConfig{Brokers: p.brokers}
	inbox, err := dedup.Open(t.Context(), p.pool, dedup.Config{})
	require.NoError(t, err)
	t.Cleanup(inbox.Close)
	memory, err := inbox.Route(t.Context(), dedup.RouteConfig{
		Group: "g", Name: "r", ParkedKey: func(r *record.Record) int64 { return parking.KeyID(r, true) },
	})
	require.NoError(t, err)
	p.store, err = parking.Open(t.Context(), p.pool, "g", "r", policy)
	require.NoError(t, err)
	letters, err := dlq.NewWriter(dlq.WriterConfig{Client: client, Group: "g"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = letters.Close() })
	rt := &middleware.Route{
		Name: "r", Group: "g", Inbox: memory, Graves: memory, DeadLetters: letters, Batches: true,
		Parking: parking.NewParker(p.store, true), Retry: middleware.Policy{Attempts: 1, Base: time.Millisecond},
		Hooks: &record.Hooks{OnSettle: p.onSettle},
	}
	layers, err := middleware.Stack(rt)
	require.NoError(t, err)
	source, err := kafka.NewSource(kafka.SourceConfig{Client: client, Group: "g"})
	require.NoError(t, err)
	parked := parking.NewSource(p.store, parking.SourceConfig{
		Route: "r", MaxBatch: 100, Poll: time.Millisecond, Gates: []parking.Gate{rt.Gates},
	})
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 5 * time.Second}, watermill.NopLogger{})
	require.NoError(t, err)
	sub := source.Subscriber(kafka.Subscription{Name: "r", MaxBatch: 100, Gates: []kafka.Gate{rt.Gates}})
	router.AddConsumerHandler("r", p.topic, sub, p.handle).AddMiddleware(layers...)
	router.AddConsumerHandler("r-parked", "parked", parked, p.handle).AddMiddleware(layers...)
	done := make(chan error, 1)
	go func() { done <- router.Run(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() {
		require.NoError(t, parked.Close())
		require.NoError(t, source.Close())
		require.NoError(t, router.Close())
		require.NoError(t, <-done)
	})
}

func (p *program) onSettle(i record.SettleInfo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settled[i.Outcome]++
	p.outcomes[i.Offset] = append(p.outcomes[i.Offset], i.Outcome)
}

func (p *program) of(offset int64) []record.Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]record.Outcome(nil), p.outcomes[offset]...)
}

// asks are the values whose handler asks for its time.
var asks = map[string]time.Duration{"asks": 300 * time.Millisecond, "asks for days": 48 * time.Hour}

func (p *program) handle(msg *message.Message) error {
	value := string(msg.Payload)
	p.mu.Lock()
	left := p.fails[value]
	p.fails[value]--
	p.mu.Unlock()
	if left > 0 {
		if ask, ok := asks[value]; ok {
			return fault.Park(errors.New("not my time yet"), ask)
		}
		return fault.Transient(errors.New("no answer for " + value))
	}
	_, err := dedup.Tx(msg.Context()).Exec(msg.Context(), "insert into effects (value) values ($1)", value)
	return err
}

func (p *program) produce(keyed ...string) {
	p.t.Helper()
	var rs []*kgo.Record
	for i := 0; i < len(keyed); i += 2 {
		rs = append(rs, &kgo.Record{Topic: p.topic, Key: []byte(keyed[i]), Value: []byte(keyed[i+1])})
	}
	kafkatest.Produce(p.t, p.brokers, rs...)
}

func (p *program) effects() (values []string) {
	p.t.Helper()
	rows, err := p.pool.Query(p.t.Context(), "select value from effects order by seq")
	require.NoError(p.t, err)
	var v string
	for rows.Next() {
		require.NoError(p.t, rows.Scan(&v))
		values = append(values, v)
	}
	require.NoError(p.t, rows.Err())
	return values
}

func (p *program) drained(effects int) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return len(p.effects()) == effects && stats(p.t, p.store).Records == 0 }, 20*time.Second, 5*time.Millisecond)
}

func TestStack(t *testing.T) {
	t.Parallel()
	policy := parking.Policy{Base: 100 * time.Millisecond, Cap: 100 * time.Millisecond, Rounds: 2}

	t.Run("AParkedRecordHoldsItsKeyAndNobodyElse", func(t *testing.T) {
		t.Parallel()
		p := newProgram(t, policy)
		p.fails["a1"] = 2
		p.produce("a", "a1", "a", "a2", "b", "b1", "a", "a3", "b", "b2")
		p.drained(5)
		var a []string
		for i, v := range p.effects() {
			if v[0] == 'a' {
				a = append(a, v)
			} else {
				require.Less(t, i, 2, "another key flows")
			}
		}
		require.Equal(t, []string{"a1", "a2", "a3"}, a)
		require.Eventually(t, func() bool { return len(p.of(0)) == 3 && len(p.of(3)) == 2 }, patience, time.Millisecond)
		require.Equal(t, []record.Outcome{record.Parked, record.Parked, record.Effected}, p.of(0))
		require.Equal(t, []record.Outcome{record.Parked, record.Effected}, p.of(3))
	})

	t.Run("AfterItsRoundsItIsDeadWithItsHistoryAndReleasesItsFollowers", func(t *testing.T) {
		t.Parallel()
		p := newProgram(t, policy)
		p.fails["a1"] = 1000
		p.produce("a", "a1", "a", "a2")
		p.drained(1)
		require.Equal(t, []string{"a2"}, p.effects())
		letters := kafkatest.ReadAll(t, p.brokers, p.topic+".dlq")
		require.Len(t, letters, 1)
		hs := make([]record.Header, len(letters[0].Headers))
		for i, h := range letters[0].Headers {
			hs[i] = record.Header(h)
		}
		e, original, ok := dlq.Decode(hs)
		require.True(t, ok)
		require.Empty(t, original)
		require.Equal(t, "a1", string(letters[0].Value))
		require.Equal(t, dlq.Coordinates{Topic: p.topic}, e.Origin)
		require.Equal(t, dlq.Exhausted, e.Reason)
		require.Contains(t, e.History, "transient after 1 attempts: no answer for a1\n")
		require.False(t, e.FirstFailed.IsZero())
		require.True(t, e.FirstFailed.Before(e.LastFailed))
	})

	t.Run("AHandlerMayAskForItsTime", func(t *testing.T) {
		t.Parallel()
		p := newProgram(t, policy)
		p.fails["asks"] = 1
		began := time.Now()
		p.produce("a", "asks")
		p.drained(1)
		require.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
	})

	// In its last round a handler that asks for more than the budget was held in memory for ever.
	t.Run("WhoAsksInTheLastRoundIsDead", func(t *testing.T) {
		t.Parallel()
		p := newProgram(t, policy)
		p.fails["asks"] = 1000
		p.produce("a", "asks", "a", "a2")
		p.drained(1)
		require.Len(t, kafkatest.ReadAll(t, p.brokers, p.topic+".dlq"), 1)
		p.ended(0, []record.Outcome{record.Parked, record.Parked, record.Dead}...)
	})

	// Each delay that a handler asked for was cut to MaxAge, and ten of them were ten times as long.
	t.Run("WhoAsksForDaysAgainAndAgainIsDeadAfterMaxAge", func(t *testing.T) {
		t.Parallel()
		p := newProgram(t, parking.Policy{Base: time.Millisecond, Cap: time.Millisecond, MaxAge: time.Second})
		p.fails["asks for days"] = 1000
		began := time.Now()
		p.produce("a", "asks for days", "a", "a2")
		p.drained(1)
		require.GreaterOrEqual(t, time.Since(began), time.Second)
		p.ended(0, []record.Outcome{record.Parked, record.Dead}...)
		p.ended(1, []record.Outcome{record.Parked, record.Effected}...)
		require.Len(t, kafkatest.ReadAll(t, p.brokers, p.topic+".dlq"), 1)
	})
}

// ended waits for the outcomes of a record.
func (p *program) ended(offset int64, want ...record.Outcome) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return len(p.of(offset)) >= len(want) }, patience, time.Millisecond)
	require.Equal(p.t, want, p.of(offset))
}

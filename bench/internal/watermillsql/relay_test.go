package watermillsql_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/headrace/headrace/bench/internal/watermillsql"
	"github.com/headrace/headrace/internal/pgtest"
)

// Watermill's Router gives a Close that took longer than its CloseTimeout up, and leaves who waits for the handlers behind.
func TestMain(m *testing.M) {
	const waits = "github.com/ThreeDotsLabs/watermill/"
	pgtest.Main(m, goleak.IgnoreAnyFunction(waits+"pubsub/sync.WaitGroupTimeout.func1"),
		goleak.IgnoreAnyFunction(waits+"message.(*Router).waitForHandlers.func1"),
		goleak.IgnoreAnyFunction(waits+"message.(*Router).watchAllHandlersStopped.func1"))
}

const events = 100

// sink is where the events go. It takes none while it is down.
type sink struct {
	mu    sync.Mutex
	down  bool
	got   map[string]bool
	after func(n int) // told of each that arrived
}

var errDown = errors.New("the broker is away")

func (s *sink) Publish(_ string, msgs ...*message.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return errDown
	}
	for _, msg := range msgs {
		s.got[msg.UUID] = true
	}
	if s.after != nil {
		s.after(len(s.got))
	}
	return nil
}

func (s *sink) Close() error { return nil }

func (s *sink) arrived() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.got)
}

func (s *sink) up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.after = false, nil
}

// publish commits the events in one transaction.
func publish(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	pub, err := watermillsql.Publisher(tx)
	require.NoError(t, err)
	for i := range events {
		require.NoError(t, pub.Publish("t", message.NewMessage(fmt.Sprint(i), []byte("{}"))))
	}
	require.NoError(t, tx.Commit(t.Context()))
}

// relay forwards until stop.
func relay(t *testing.T, pool *pgxpool.Pool, to *sink) (stop func()) {
	t.Helper()
	r, err := watermillsql.NewRelay(pool, to, watermillsql.Config{
		AckDeadline: time.Second, ResendInterval: 50 * time.Millisecond, PollInterval: 20 * time.Millisecond, CloseTimeout: 5 * time.Second,
	})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Run(context.Background())
	}()
	return func() {
		_ = r.Close()
		<-done
	}
}

func empty(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool {
		n, err := watermillsql.Waiting(context.Background(), pool)
		return err == nil && n == 0
	}, 30*time.Second, 20*time.Millisecond)
}

// Two ordinary failures lose what was committed: all rows of a batch are deleted, those after the first that was not acked
// too. This is why Headrace's outbox is a table of its own; its own tests of the same failures lose nothing. Should one of
// these fail some day, watermill-sql has been mended, and the documentation is to be changed.
func TestWatermillSQLLosesEvents(t *testing.T) {
	t.Parallel()

	t.Run("WhenTheBrokerIsAwayPastTheAckDeadline", func(t *testing.T) {
		t.Parallel()
		pool, to := pgtest.New(t), &sink{got: map[string]bool{}}
		to.after = func(n int) { to.down = to.down || n == 10 }
		stop := relay(t, pool, to)
		publish(t, pool)
		empty(t, pool) // although nobody took 90 of them
		to.up()
		stop()
		t.Logf("%d of %d events are lost", events-to.arrived(), events)
		require.Less(t, to.arrived(), events)
	})

	t.Run("WhenItsSubscriberIsClosedInTheMiddleOfABatch", func(t *testing.T) {
		t.Parallel()
		pool, to := pgtest.New(t), &sink{got: map[string]bool{}}
		var once sync.Once
		middle := make(chan struct{})
		to.after = func(n int) {
			if n >= 27 {
				once.Do(func() { close(middle) })
				<-time.After(20 * time.Millisecond) // a broker that takes its time
			}
		}
		stop := relay(t, pool, to)
		publish(t, pool)
		<-middle
		stop()
		to.up()
		stop = relay(t, pool, to)
		empty(t, pool)
		stop()
		t.Logf("%d of %d events are lost", events-to.arrived(), events)
		require.Less(t, to.arrived(), events)
	})
}

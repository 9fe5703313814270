package consumer

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

func TestRun(t *testing.T) {
	t.Parallel()

	t.Run("GivesEveryRecordItsOutcome", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		route := Route[item]{Name: "post", Topic: "orders", Apply: func(ctx context.Context, tx pgx.Tx, e Event[item]) error {
			if err := effect(ctx, tx, "post", e.Data); err != nil {
				return err
			}
			switch e.Data.Kind {
			case "flaky":
				if e.Attempt == 1 {
					return fault.Transient(errors.New("not now"))
				}
			case "poison":
				return errors.New("no such account")
			case "skip":
				return fault.Skip("cancelled")
			case "panic":
				panic("boom")
			}
			return nil
		}}
		b.produce(items("ok", 200)...)
		b.produce(items("flaky", 5)...)
		b.produce(items("poison", 4)...)
		b.produce(items("skip", 3)...)
		b.produce(items("panic", 2)...)
		b.produce(&kgo.Record{Topic: "orders", Value: []byte("{")})
		b.produce(items("ok", 7)...) // once more: a producer's duplicates
		r := b.start(b.config(), route)
		require.Equal(t, map[record.Outcome]int{
			record.Effected: 205, record.Duplicate: 7, record.Skipped: 3, record.Dead: 7,
		}, b.outcomes(222))
		r.stop()
		require.Len(t, b.effects("post"), 205)
		require.EqualValues(t, 7, b.length("orders.dlq"))
		require.Zero(t, b.behind())
		text := scrape(t, r.c.cfg.Registry)
		for _, want := range []string{
			`headrace_records_total{outcome="effected",route="post"} 205`,
			`headrace_records_total{outcome="duplicate",route="post"} 7`,
			`headrace_attempts_total{class="transient",outcome="failed",route="post"} 5`,
			`headrace_dead_letters_total{reason="permanent",route="post"} 4`,
			`headrace_dead_letters_total{reason="panic",route="post"} 2`,
			`headrace_dead_letters_total{reason="undecodable",route="post"} 1`,
			`headrace_inbox_answers_total{answer="duplicate",route="post"} 7`,
		} {
			require.Contains(t, text, want+"\n")
		}
	})

	t.Run("CountsAnAttemptAsTheRoutesOwnRulesNameIt", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		full := errors.New("ledger is full")
		route := Route[item]{
			Name: "post", Topic: "orders",
			Apply: func(ctx context.Context, tx pgx.Tx, e Event[item]) error {
				if e.Attempt == 1 {
					return full
				}
				return effect(ctx, tx, "post", e.Data)
			},
			Options: Options{Rules: []fault.Rule{func(err error) (fault.Fault, bool) {
				return fault.Fault{Class: fault.ClassTransient, Rule: "full"}, errors.Is(err, full)
			}}},
		}
		b.produce(items("ok", 3)...)
		r := b.start(b.config(), route)
		require.Equal(t, map[record.Outcome]int{record.Effected: 3}, b.outcomes(3))
		r.stop()
		require.Contains(t, scrape(t, r.c.cfg.Registry), `headrace_attempts_total{class="transient",outcome="failed",route="post"} 3`+"\n")
	})

	t.Run("GivesEachRouteOfATopicEveryRecord", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.produce(items("ok", 50)...)
		r := b.start(b.config(), effectRoute("first"), effectRoute("second"))
		require.Equal(t, map[record.Outcome]int{record.Effected: 100}, b.outcomes(100))
		r.stop()
		require.ElementsMatch(t, b.effects("first"), b.effects("second"))
		require.Len(t, b.effects("first"), 50)
		require.Zero(t, b.behind())
	})
}

func TestRun_OneMissingDeadLetterTopicStopsEveryRoute(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	admin := kadm.NewClient(b.client)
	_, err := admin.CreateTopic(t.Context(), 1, 1, nil, "refunds")
	require.NoError(t, err)
	apply := func(_ context.Context, _ pgx.Tx, e Event[item]) error {
		if e.Data.Kind == "poison" {
			return errors.New("no such account")
		}
		return nil
	}
	r := b.start(b.config(), Route[item]{Name: "order", Topic: "orders", Apply: apply}, Route[item]{Name: "refund", Topic: "refunds", Apply: apply})
	b.produce(items("ok", 1)...)
	b.outcomes(1) // it runs
	_, err = admin.DeleteTopic(t.Context(), "orders.dlq")
	require.NoError(t, err)
	b.produce(items("poison", 1)...)
	b.eventually("the dead record holds", func() bool {
		_, text := r.ask("/readyz")
		return strings.Contains(text, `route "order" holds: dead-letter-topic has been down`)
	})
	_, text := r.ask("/readyz")
	require.NotContains(t, text, `"refund"`)
	b.produce(items("healthy", 30)...)
	refund := items("poison", 1)[0]
	refund.Topic = "refunds"
	b.produce(refund)
	require.Equal(t, map[record.Outcome]int{record.Effected: 30, record.Dead: 1}, b.outcomes(31))
	require.EqualValues(t, 1, b.length("refunds.dlq"))
	_, err = admin.CreateTopic(t.Context(), 4, 1, nil, "orders.dlq")
	require.NoError(t, err)
	require.Equal(t, map[record.Outcome]int{record.Dead: 1}, b.outcomes(1))
	r.stop()
	require.EqualValues(t, 1, b.length("orders.dlq"))
	require.Zero(t, b.behind())
}

func TestRun_End(t *testing.T) {
	t.Parallel()

	t.Run("FinishesAndCommitsWhatIsInFlight", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		entered, leave := make(chan struct{}), make(chan struct{})
		route := Route[item]{Name: "slow", Topic: "orders", Apply: func(ctx context.Context, tx pgx.Tx, e Event[item]) error {
			close(entered)
			select {
			case <-leave:
			case <-ctx.Done():
				return ctx.Err()
			}
			return effect(ctx, tx, "slow", e.Data)
		}}
		b.produce(items("ok", 1)...)
		r := b.start(b.config(), route)
		<-entered
		r.end()
		b.eventually("readiness turns red", func() bool { code, _ := r.ask("/readyz"); return code == http.StatusServiceUnavailable })
		code, _ := r.ask("/livez")
		require.Equal(t, http.StatusOK, code, "a process that stops is not to be killed")
		close(leave)
		require.NoError(t, r.ended())
		require.Equal(t, []string{"ok-0"}, b.effects("slow"))
		require.Zero(t, b.behind())
	})

	t.Run("GivesUpARecordThatNeverEnds", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		leave := make(chan struct{})
		route := Route[item]{Name: "stuck", Topic: "orders", Apply: func(context.Context, pgx.Tx, Event[item]) error {
			<-leave // and ignores its context
			return nil
		}}
		route.Attempts, route.AttemptTimeout = 1, 2*time.Second
		cfg := b.config()
		cfg.DeadLetterTimeout, cfg.CommitReserve, cfg.MaxPollInterval = time.Second, 500*time.Millisecond, 4*time.Second
		cfg.DrainGrace, cfg.HardGrace = 500*time.Millisecond, 60*time.Second // the inbox would take it away before
		cfg.RebalanceTimeout = 2 * time.Minute
		b.produce(items("ok", 1)...)
		r := b.start(cfg, route)
		b.eventually("liveness turns red", func() bool { code, _ := r.ask("/livez"); return code == http.StatusServiceUnavailable })
		close(leave)
		require.ErrorContains(t, r.ended(), "longer than MaxPollInterval 4s")
	})

	t.Run("GivesUpADecoderThatNeverEnds", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		leave := make(chan struct{})
		route := effectRoute("stuck")
		route.Decode = func(*record.Record, any) error {
			<-leave // a schema registry, asked without a time-out
			return nil
		}
		route.Attempts, route.AttemptTimeout = 1, 500*time.Millisecond
		cfg := b.config()
		cfg.DeadLetterTimeout, cfg.CommitReserve, cfg.MaxPollInterval = time.Second, 500*time.Millisecond, 3*time.Second
		cfg.DrainGrace, cfg.HardGrace = 500*time.Millisecond, 500*time.Millisecond
		b.produce(items("ok", 1)...)
		r := b.start(cfg, route)
		b.eventually("liveness turns red", func() bool { code, _ := r.ask("/livez"); return code == http.StatusServiceUnavailable })
		require.ErrorContains(t, r.ended(), "longer than MaxPollInterval 3s", "though the decoder never returned")
		close(leave)
	})

	t.Run("GivesUpACallThatNeverEnds", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		leave := make(chan struct{})
		route := CallRoute[item, receipt]{
			Name: "stuck", Topic: "orders", Dependency: dependency(t, "payments"), Repeat: RepeatSafe, CallTimeout: 500 * time.Millisecond,
			Call: func(context.Context, Event[item]) (receipt, error) {
				<-leave // and ignores its context
				return receipt{}, nil
			},
			Apply: func(context.Context, pgx.Tx, Event[item], receipt) error { return nil },
		}
		route.Attempts, route.AttemptTimeout = 1, 500*time.Millisecond
		cfg := b.config()
		cfg.DeadLetterTimeout, cfg.CommitReserve, cfg.MaxPollInterval = time.Second, 500*time.Millisecond, 3*time.Second
		cfg.DrainGrace, cfg.HardGrace = 500*time.Millisecond, 500*time.Millisecond
		b.produce(items("ok", 1)...)
		r := b.start(cfg, route)
		b.eventually("liveness turns red", func() bool { code, _ := r.ask("/livez"); return code == http.StatusServiceUnavailable })
		require.ErrorContains(t, r.ended(), `the call of route "stuck" has been at orders/`)
		close(leave)
	})

	t.Run("GoesOnWhereThePreviousOneStopped", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.produce(items("a", 30)...)
		first := b.start(b.config(), effectRoute("post"))
		b.outcomes(30)
		first.stop()
		b.produce(items("b", 20)...)
		second := b.start(b.config(), effectRoute("post"))
		require.Equal(t, map[record.Outcome]int{record.Effected: 20}, b.outcomes(20))
		second.stop()
		require.Len(t, b.effects("post"), 50)
	})
}

func TestRun_Extras(t *testing.T) {
	t.Parallel()

	t.Run("RunsMiddlewaresInsideTheTransactionOfEachRecord", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		var inside atomic.Int64
		witness := func(next message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				if dedup.Tx(msg.Context()) != nil && len(msg.Payload) > 0 && msg.UUID == record.Of(msg.Context()).Identity.ID {
					inside.Add(1)
				}
				return next(msg)
			}
		}
		route := effectRoute("post")
		route.Middlewares = []message.HandlerMiddleware{witness}
		b.produce(items("ok", 40)...)
		r := b.start(b.config(), route)
		b.outcomes(40)
		r.stop()
		require.EqualValues(t, 40, inside.Load())
	})

	t.Run("RunsOnce", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		r := b.start(b.config(), effectRoute("post"))
		b.eventually("ready", func() bool { return r.c.Ready() == nil })
		require.ErrorIs(t, r.c.Run(t.Context()), ErrStarted)
		r.stop()
	})

	t.Run("HoldsWhileTheDatabaseIsAwayAndBuriesNobody", func(t *testing.T) {
		t.Parallel()
		dsn := pgtest.DSN(t, migrations.Up, effectsTable)
		proxy := pgtest.NewProxy(t, dsn)
		b := newBedOn(t, pgtest.Pool(t, dsn))
		cfg := b.config()
		cfg.DB = pgtest.Pool(t, proxy.DSN())
		r := b.start(cfg, effectRoute("post"))
		b.produce(items("before", 20)...)
		b.outcomes(20)
		proxy.Down()
		b.produce(items("during", 300)...)
		b.eventually("readiness says what is down", func() bool {
			code, text := r.ask("/readyz")
			return code == http.StatusServiceUnavailable && text != "" && r.c.Live() == nil
		})
		require.NoError(t, proxy.Accept())
		require.Equal(t, map[record.Outcome]int{record.Effected: 300}, b.outcomes(300))
		b.eventually("readiness is green again", func() bool { code, _ := r.ask("/readyz"); return code == http.StatusOK })
		r.stop()
		require.Len(t, b.effects("post"), 320)
		require.Zero(t, b.length("orders.dlq"))
		require.Contains(t, scrape(t, r.c.cfg.Registry), `headrace_holding{dependency="database",route="post"} 0`)
	})
}

func TestStart(t *testing.T) {
	t.Parallel()

	t.Run("RefusesWithAllProblemsAtOnce", func(t *testing.T) {
		t.Parallel()
		b := newBedOn(t, pgtest.New(t)) // no schema
		cfg := b.config()
		cfg.CreateDeadLetterTopics = false
		unknown := effectRoute("other")
		unknown.Topic = "returns"
		r := b.start(cfg, effectRoute("post"), unknown)
		err := r.ended()
		var start *StartError
		require.ErrorAs(t, err, &start)
		require.Len(t, start.Problems, 4, err)
		require.ErrorContains(t, err, `topic "returns" of route "other"`)
		require.ErrorContains(t, err, `dead letter topic "orders.dlq" of "orders": the dead letter topic does not exist`)
		require.ErrorContains(t, err, `replay topic "orders.billing.replay" of "orders" does not exist`)
		require.ErrorIs(t, err, dedup.ErrNoSchema)
		require.ErrorContains(t, err, "set Config.Migrate")
	})

	t.Run("MigratesWhenItMay", func(t *testing.T) {
		t.Parallel()
		b := newBedOn(t, pgtest.New(t, effectsTable))
		cfg := b.config()
		cfg.Migrate = true
		b.produce(items("ok", 1)...)
		r := b.start(cfg, effectRoute("post"))
		b.outcomes(1)
		r.stop()
	})

	t.Run("CheckFindsTheSameAndChangesNothing", func(t *testing.T) {
		t.Parallel()
		b := newBedOn(t, pgtest.New(t))
		c, err := New(b.config(), effectRoute("post"))
		require.NoError(t, err)
		require.ErrorIs(t, c.Check(t.Context()), dedup.ErrNoSchema)
		require.True(t, b.missing("orders.dlq"), "Check must not create a topic")
		require.NoError(t, migrations.Up(t.Context(), b.pool))
		require.NoError(t, c.Check(t.Context()))
	})

	t.Run("SaysThatABrokerDoesNotAnswer", func(t *testing.T) {
		t.Parallel()
		cfg := Config{Brokers: []string{"127.0.0.1:1"}, Group: "billing", DB: pgtest.New(t, migrations.Up)}
		c, err := New(cfg, effectRoute("post"))
		require.NoError(t, err)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errSilent) // as if the time were over
		require.ErrorContains(t, c.Check(ctx), "the brokers 127.0.0.1:1 cannot be asked: no answer within 30s")
	})

	t.Run("SaysWhatIsWrongWithABrokerThatDoesNotAnswer", func(t *testing.T) {
		t.Parallel()
		cfg := Config{Brokers: []string{"127.0.0.1:1"}, Group: "billing", DB: pgtest.New(t, migrations.Up)}
		c, err := New(cfg, effectRoute("post"))
		require.NoError(t, err)
		admin, err := kafka.NewAdmin(c.cfg.client())
		require.NoError(t, err)
		defer admin.Close()
		for _, err := range []error{c.Check(t.Context()), c.silentBroker(t.Context(), admin, "orders", errSilent)} {
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
			require.ErrorContains(t, err, "the brokers 127.0.0.1:1 cannot be asked: ")
			require.ErrorContains(t, err, "fix: check Brokers: nobody listens at that port")
		}
	})

	t.Run("EndsQuietlyWhenItIsStoppedBeforeItBegan", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		c, err := New(b.config(), effectRoute("post"))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, c.Run(ctx))
	})
}

func TestHealth(t *testing.T) {
	t.Parallel()
	cfg, route := good(t)
	c, err := New(cfg, route)
	require.NoError(t, err)
	r := &running{c: c}
	code, text := r.ask("/livez")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok\n", text)
	code, text = r.ask("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "not started\n", text)
	code, text = r.ask("/metrics")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, text, `headrace_records_total{outcome="effected",route="post"} 0`)
}

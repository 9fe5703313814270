package peer

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/bench/internal/child"
	"github.com/headrace/headrace/bench/internal/load"
	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/kafka/stock"
	"github.com/headrace/headrace/outbox"
	"github.com/headrace/headrace/record"
)

var (
	errPoison = errors.New("this posting can never succeed")
	errNotNow = errors.New("this posting fails whenever it is tried")
)

type event = consumer.Event[load.Posting]

// headraceApply is the ordinary route of the README: a handler that executes its SQL.
func headraceApply(ctx context.Context, s *child.Session) error {
	w := newWatch(s)
	return runHeadrace(ctx, s, w, consumer.Route[load.Posting]{
		Name: "post", Topic: s.Topic, Options: options(s),
		Apply: func(ctx context.Context, tx pgx.Tx, e event) error {
			w.begin(e)
			defer s.Done(1)
			if e.Data.Poison {
				return fault.Permanent(errPoison)
			}
			if err := pause(ctx, s); err != nil {
				return err
			}
			if err := tell(tx, s, e); err != nil {
				return err
			}
			if err := post(ctx, tx, e.Data); err != nil {
				return err
			}
			return unlucky(ctx, e.Data)
		},
	})
}

// unlucky is what the handler of a key that fails for ever comes to, after its statement: that has to be undone.
func unlucky(ctx context.Context, p load.Posting) error {
	if p.Hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	if p.Fails {
		return fault.Transient(errNotNow)
	}
	return nil
}

// options are the defaults, but for what the bench varies.
func options(s *child.Session) consumer.Options {
	o := consumer.Options{MaxBatch: s.Options.MaxBatch, Lanes: s.Options.Lanes}
	if s.Options.Store == "offsets" {
		o.Store = dedup.ByOffset
	}
	if s.Options.Order == "partition" {
		o.Order = kafka.ByPartition
	}
	return o
}

func runHeadrace(ctx context.Context, s *child.Session, w *watch, route consumer.AnyRoute) error {
	db, err := connect(ctx, s)
	if err != nil {
		return err
	}
	defer db.Close()
	cfg := consumer.Config{
		Brokers: brokers(s), Group: s.Group, DB: db, Migrate: true, CreateDeadLetterTopics: true,
		Writers: s.Options.Writers, Hooks: w.hooks(),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	}
	if s.Options.Transport == "stock" {
		cfg.Transport = stock.Transport()
	}
	if s.Options.Events != "" {
		cfg.Outbox = &outbox.Config{}
	}
	c, err := consumer.New(cfg, route)
	if err != nil {
		return err
	}
	s.Ready()
	return c.Run(ctx)
}

// watch knows when a record's effect is committed: the engine settles it after the COMMIT was answered.
type watch struct {
	s   *child.Session
	mu  sync.Mutex
	due map[place]int64
}

type place struct {
	partition int32
	offset    int64
}

func newWatch(s *child.Session) *watch { return &watch{s: s, due: map[place]int64{}} }

// begin is told of a record whose handler begins.
func (w *watch) begin(e event) {
	w.s.First()
	if !w.s.Options.Latency {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due[place{e.Partition, e.Offset}] = e.Data.Due
}

func (w *watch) hooks() *record.Hooks {
	if !w.s.Options.Latency {
		return nil
	}
	return &record.Hooks{OnSettle: func(i record.SettleInfo) {
		w.mu.Lock()
		at := place{i.Partition, i.Offset}
		due, ours := w.due[at]
		delete(w.due, at)
		w.mu.Unlock()
		if ours {
			w.s.Took(due)
		}
	}}
}

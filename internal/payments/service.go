package payments

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/idempotency"
)

// Config is a service's. DSN is required.
type Config struct {
	// DSN is of the database that its book is in.
	DSN string
	// Merchant is whose book it is: services of one merchant share it.
	Merchant string
	// Listen is the address to serve at. Defaults to a free port of 127.0.0.1.
	Listen string
	// Fault says what goes wrong with an order. Defaults to nothing.
	Fault func(order string) Fault
	// Bank says which accounts are of the bank that BankAway takes away. Defaults to none.
	Bank func(account int) bool
	// Slow is how late the answer of a slow charge comes, if its client waits for it. Defaults to 10 s.
	Slow time.Duration
	// Hooks are told what becomes of the charges' keys.
	Hooks idempotency.Hooks
	// Forgetful has it charge a key again whenever it is asked: to see what keys are for.
	Forgetful bool
	// Logger defaults to none.
	Logger *slog.Logger
}

// Service is a running payment service. It is safe for concurrent use; whoever started it closes it.
type Service struct {
	cfg    Config
	book   *book
	keys   *idempotency.Keys
	server *http.Server
	url    string

	stop  context.CancelFunc // of the sweep
	ended sync.WaitGroup

	away, mended, bankAway atomic.Bool

	refusals sync.Map     // by the bank's absence, by key
	most     atomic.Int64 // of them
	tried    sync.Map     // the keys whose first try has failed
}

// connections is how many charges are entered at once.
const connections = 8

// Start opens the book and serves it. ctx bounds the start only.
func Start(ctx context.Context, cfg Config) (*Service, error) {
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	if cfg.Slow == 0 {
		cfg.Slow = 10 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	pool, err := pgxpool.ParseConfig(cfg.DSN)
	if err != nil {
		return nil, err
	}
	pool.MaxConns = connections
	db, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), pool)
	if err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, book: &book{db: db, merchant: cfg.Merchant}}
	s.keys, err = idempotency.New(db, idempotency.Config{
		Principal: func(*http.Request) string { return cfg.Merchant },
		Table:     keysTable, Timeout: maxTime, MaxBytes: maxBody, Hooks: cfg.Hooks, Logger: cfg.Logger,
	})
	if err != nil {
		db.Close()
		return nil, err
	}
	if err = s.book.prepare(ctx); err == nil {
		err = s.listen()
	}
	if err != nil {
		db.Close()
		return nil, fmt.Errorf("payment service: %w", err)
	}
	s.sweep(ctx)
	return s, nil
}

func (s *Service) sweep(ctx context.Context) {
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.ended.Go(func() { _ = s.keys.Run(ctx) }) // nil, when ctx has ended
}

func (s *Service) listen() error {
	listener, err := net.Listen("tcp", s.cfg.Listen)
	if err != nil {
		return err
	}
	s.url = "http://" + listener.Addr().String()
	s.server = &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelWarn)}
	s.ended.Go(func() {
		if err := s.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.cfg.Logger.Error("payment service", "error", err)
		}
	})
	return nil
}

// URL is where it is served, without a path.
func (s *Service) URL() string { return s.url }

// Away has every charge refused, until it is called with false.
func (s *Service) Away(away bool) { s.away.Store(away) }

// BankAway has every charge of the Bank's accounts refused, until it is called with false; all others go on.
func (s *Service) BankAway(away bool) { s.bankAway.Store(away) }

// BankRefusals is how often the bank's absence has refused the charge that it has refused most often.
func (s *Service) BankRefusals() int64 { return s.most.Load() }

// Mend ends all faults: who could not pay has paid.
func (s *Service) Mend() { s.mended.Store(true) }

// Close ends the service and every request in progress.
func (s *Service) Close() {
	_ = s.server.Close() // what it breaks is repeated by whoever asked
	s.stop()
	s.ended.Wait()
	s.book.db.Close()
}

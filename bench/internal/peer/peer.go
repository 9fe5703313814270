// Package peer has the contenders that are written in Go, each as its users write it: Headrace's routes, stock Watermill,
// franz-go and Sarama by hand; and the limits that nobody can pass, Postgres and Kafka each alone.
package peer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/bench/internal/child"
	"github.com/headrace/headrace/bench/internal/load"
)

// modes are what a child of this binary can be. Each consumes until ctx ends.
var modes = map[string]func(ctx context.Context, s *child.Session) error{
	"headrace-apply":      headraceApply,
	"headrace-queue":      headraceQueue,
	"headrace-batch":      headraceBatch,
	"headrace-call":       headraceCall,
	"headrace-call-queue": headraceCallQueue,
	"stock":               stockApply,
	"stock-call":          stockCall,
	"franz-rows":          franzRows,
	"franz-set":           franzSet,
	"franz-cte":           franzCTE,
	"plain":               plain,
	"sarama":              saramaPlain,
	"postgres-rows":       postgresRows,
	"postgres-set":        postgresSet,
	"kafka-franz":         readFranz,
	"kafka-sarama":        readSarama,
}

// Run is the contender that the session's spec names.
func Run(ctx context.Context, s *child.Session) error {
	mode, ok := modes[s.Mode]
	if !ok {
		return fmt.Errorf("no mode %q", s.Mode)
	}
	return mode(ctx, s)
}

func brokers(s *child.Session) []string { return strings.Split(s.Bootstrap, ",") }

// conns is every contender's pool: more than any of them works with at a time.
const conns = 24

// connect opens a pool and its connections, so that no run pays for that.
func connect(ctx context.Context, s *child.Session) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(s.DSN)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = conns
	db, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	held := make([]*pgxpool.Conn, 0, conns)
	for range min(int(s.Partitions), conns) {
		conn, err := db.Acquire(ctx)
		if err != nil {
			db.Close()
			return nil, err
		}
		held = append(held, conn)
	}
	for _, conn := range held {
		conn.Release()
	}
	return db, nil
}

// execer is a transaction or a pool.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

const updateAccount = `update accounts set balance = balance + $1 where id = $2`

// post is the work of a record.
func post(ctx context.Context, db execer, p load.Posting) error {
	_, err := db.Exec(ctx, updateAccount, p.Amount, p.Account)
	return err
}

// pause sleeps as long as the bench asks of a handler: nothing, or any time up to the most.
func pause(ctx context.Context, s *child.Session) error {
	most := time.Duration(s.Options.SleepMaxMS * float64(time.Millisecond))
	if most <= 0 {
		return nil
	}
	timer := time.NewTimer(rand.N(most))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// took says when the effects of postings are committed, if the bench asks.
func took(s *child.Session, ps ...load.Posting) {
	if !s.Options.Latency {
		return
	}
	for _, p := range ps {
		s.Took(p.Due)
	}
}

// postOnce is the inbox row and the work of a record in a transaction of its own, as one writes it with pgx.
func postOnce(ctx context.Context, db *pgxpool.Pool, id string, p load.Posting) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `insert into stock_inbox values ('post', $1) on conflict do nothing`, id)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return post(ctx, tx, p)
	})
}

// idOf is the identity that the producer gave the record.
func idOf(r *kgo.Record) string {
	i := slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == load.IDHeader })
	if i < 0 {
		return ""
	}
	return string(r.Headers[i].Value)
}

package pools

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Grace is how long the end of a pool may take before its connections are cut off: far longer than a server that answers
// needs, and a small part of what an orchestrator gives a process.
const Grace = 2 * time.Second

// Open opens a pool of ours. Its sessions are called name in pg_stat_activity, unless cfg names them, which it changes.
// closes ends the pool: nobody may use it any more, and Grace later whatever connection it has left is cut off.
func Open(ctx context.Context, cfg *pgxpool.Config, name string) (pool *pgxpool.Pool, closes func(), err error) {
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = name
	}
	all := &lines{dial: cfg.ConnConfig.DialFunc, open: map[*line]struct{}{}}
	cfg.ConnConfig.DialFunc = all.Dial
	if pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, nil, err
	}
	return pool, func() {
		cut := time.AfterFunc(Grace, all.cut)
		defer cut.Stop()
		pool.Close()
	}, nil
}

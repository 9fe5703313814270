package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/test/attack/lab"
)

// fillDisk leaves the database no room for long. Without any a table cannot grow, which is an error, nor can the log, which
// ends the server: it does not even recover before there is room again. A log that is at the end of its file needs the next one
// at once.
func fillDisk(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	if s.Data == nil {
		return errors.New("the database has no volume of its own: only root can mount one, on Linux")
	}
	spare, ends := int64(rng.IntN(64<<10)), rng.IntN(2) == 0
	mend, err := s.Data.Fill(spare)
	if err != nil {
		return err
	}
	backoff.Wait(ctx, between(rng, time.Second, 5*time.Second))
	if ends {
		_ = s.Exec(context.WithoutCancel(ctx), `select pg_switch_wal()`) // it may be down already
	}
	backoff.Wait(ctx, between(rng, 2*time.Second, 10*time.Second))
	var struck error
	if s.Exec(context.WithoutCancel(ctx), `create temp table rest as select generate_series(1, 100000)`) == nil { // 3.5 MiB
		struck = errors.New("the disk is not full")
	}
	return errors.Join(struck, mend(), back(context.WithoutCancel(ctx), s))
}

// back waits for the server to take connections, and starts it if it has given up.
func back(ctx context.Context, s *lab.Site) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if err = s.Postgres.Start(ctx); err == nil {
			err = s.Exec(ctx, `select 1`)
		}
		if err == nil {
			return nil
		}
		if !backoff.Wait(ctx, 100*time.Millisecond) {
			return fmt.Errorf("the server is not back: %w", err)
		}
	}
}

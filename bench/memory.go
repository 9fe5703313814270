package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/headrace/headrace/consumer"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// memory runs a consumer with a slow handler over a long backlog in a process of its own and returns the most memory
// that was resident, in MB.
func memory(ctx context.Context, e env, w workload, watch time.Duration) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, self, slowArg, w.topic)
	cmd.Env = append(os.Environ(), "BENCH_DSN="+e.dsn, "BENCH_BROKERS="+strings.Join(e.brokers, ","))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	peak := 0
	end := time.After(watch)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-end:
			return peak, nil
		case <-tick.C:
			rss, err := residentMB(cmd.Process.Pid)
			if err != nil {
				return 0, fmt.Errorf("the slow consumer ended: %w", err)
			}
			peak = max(peak, rss)
		}
	}
}

// slowArg makes this binary the slow consumer of the memory bench.
const slowArg = "slow-consumer"

// slowConsumer handles a hundred records a second, so that its backlog is there as long as anybody looks.
func slowConsumer(ctx context.Context, topic string) error {
	db, err := pgxpool.New(ctx, os.Getenv("BENCH_DSN"))
	if err != nil {
		return err
	}
	defer db.Close()
	e := env{brokers: strings.Split(os.Getenv("BENCH_BROKERS"), ","), db: db}
	seen := &clock{}
	stop, err := startHeadrace(e, "bench-slow", seen, false, consumer.Route[posting]{
		Name: "slow", Topic: topic,
		Apply: func(ctx context.Context, tx pgx.Tx, ev consumer.Event[posting]) error {
			_, err := tx.Exec(ctx, `select pg_sleep(0.01)`)
			return err
		},
	})
	if err != nil {
		return err
	}
	defer stop()
	<-ctx.Done()
	return seen.err()
}

// residentMB reads a process's resident memory from /proc.
func residentMB(pid int) (int, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // read only
	for s := bufio.NewScanner(f); s.Scan(); {
		if kb, ok := strings.CutPrefix(s.Text(), "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.Fields(kb)[0])
			return n / 1024, err
		}
	}
	return 0, fmt.Errorf("no VmRSS of process %d", pid)
}

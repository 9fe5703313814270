package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/headrace/headrace/test/attack/audit"
	"github.com/headrace/headrace/test/attack/lab"
)

// watch looks all the time at what is gone when a run is over: what is parked, and what processes have counted that end.
type watch struct {
	site   *lab.Site
	cancel context.CancelFunc
	done   chan struct{}
	began  chan struct{} // closed when there is a first effect

	mu     sync.Mutex
	parked map[string]audit.Parked
	again  map[string]float64 // a process's count of records that it met again, by where its metrics are
	told   map[told]float64
}

// told is what a process has reported.
type told struct{ addr, kind string }

func startWatch(ctx context.Context, s *lab.Site) *watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{
		site: s, cancel: cancel, done: make(chan struct{}), began: make(chan struct{}),
		parked: map[string]audit.Parked{}, again: map[string]float64{}, told: map[told]float64{},
	}
	go w.run(ctx)
	return w
}

func (w *watch) run(ctx context.Context) {
	defer close(w.done)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for begun := false; ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		there, err := w.look(ctx)
		if err == nil && there && !begun { // the server may be away
			begun = true
			close(w.began)
		}
		w.count(ctx)
	}
}

// look says whether there is an effect.
func (w *watch) look(ctx context.Context) (there bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := w.site.Connect(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	parked, err := audit.ReadParked(ctx, conn, w.site.Group)
	if err != nil {
		return false, err
	}
	w.mu.Lock()
	for _, p := range parked {
		w.parked[fmt.Sprint(p.Route, p.Partition, p.Offset)] = p
	}
	w.mu.Unlock()
	err = conn.QueryRow(ctx, `select exists (select from effects)`).Scan(&there)
	return there, err
}

// count asks each process how many records it was given of which it found that they had their effect, and what it has reported.
func (w *watch) count(ctx context.Context) {
	for _, slot := range w.site.Members.Running() {
		addr := slot.Metrics()
		if addr == "" {
			continue
		}
		page := read(ctx, addr)
		w.mu.Lock()
		w.again[addr] = max(w.again[addr], page.sum("headrace_inbox_answers_total", `answer="own"`))
		for series, n := range page {
			if kind, found := strings.CutPrefix(series, `headrace_reports_total{kind="`); found && n > 0 {
				w.told[told{addr, strings.TrimSuffix(kind, `"}`)}] = n
			}
		}
		w.mu.Unlock()
	}
}

// first waits for the first effect.
func (w *watch) first(ctx context.Context, most time.Duration) error {
	select {
	case <-w.began:
		return nil
	case <-time.After(most):
		return errors.New("no effect at all")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stop ends it, and gives what it has seen.
func (w *watch) stop() (parked []audit.Parked, again int, reports map[string]int) {
	w.cancel()
	<-w.done
	for _, p := range w.parked {
		parked = append(parked, p)
	}
	for _, n := range w.again {
		again += int(n)
	}
	reports = map[string]int{}
	for t, n := range w.told {
		reports[t.kind] += int(n)
	}
	return parked, again, reports
}

// ask asks the run's database, past the proxies, one question, whose answer is one row.
func ask(ctx context.Context, s *lab.Site, sql string, args []any, into ...any) error {
	conn, err := s.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return conn.QueryRow(ctx, sql, args...).Scan(into...)
}

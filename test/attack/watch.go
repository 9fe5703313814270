package main

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headrace/headrace/test/attack/lab"
)

// watch looks at how many effects there are, all the time.
type watch struct {
	cancel context.CancelFunc
	done   chan struct{}
	began  chan struct{} // closed when there is a first effect

	mu    sync.Mutex
	stall time.Duration
}

func startWatch(ctx context.Context, s *lab.Site) *watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{cancel: cancel, done: make(chan struct{}), began: make(chan struct{})}
	go w.run(ctx, s)
	return w
}

func (w *watch) run(ctx context.Context, s *lab.Site) {
	defer close(w.done)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	last, since := int64(0), time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		n, err := effects(ctx, s)
		if err != nil || n == last {
			continue // the server may be away
		}
		if last == 0 {
			close(w.began)
		} else {
			w.note(time.Since(since))
		}
		last, since = n, time.Now()
	}
}

func (w *watch) note(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stall = max(w.stall, d)
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

// longest is the longest time without a new effect, in seconds.
func (w *watch) longest() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stall.Round(100 * time.Millisecond).Seconds()
}

func (w *watch) stop() {
	w.cancel()
	<-w.done
}

func effects(ctx context.Context, s *lab.Site) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := s.Connect(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.QueryRow(ctx, `select coalesce(max(seq), 0) from (select seq from effects order by seq desc limit 1) e`).Scan(&n)
	return n, err
}

// sizes are those of the members that are up.
func sizes(ctx context.Context, s *lab.Site) (most size) {
	for _, slot := range s.Members.Running() {
		page := map[string]float64{}
		if addr := slot.Metrics(); addr != "" {
			page = read(ctx, "http://"+addr+"/metrics")
		}
		most.Goroutines = max(most.Goroutines, int(page["go_goroutines"]))
		most.Files = max(most.Files, int(page["process_open_fds"]))
		most.MiB = max(most.MiB, int(page["process_resident_memory_bytes"])>>20)
	}
	return most
}

// read gives the series without labels of a page of metrics, none of one that cannot be read.
func read(ctx context.Context, url string) map[string]float64 {
	page := map[string]float64{}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return page
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return page
	}
	defer func() { _ = answer.Body.Close() }()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			page[name] = n
		}
	}
	return page
}

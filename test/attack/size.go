package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/test/attack/lab"
)

// size is the largest of any member's process.
type size struct {
	Goroutines int `json:"goroutines"`
	// Files are open file descriptors, Sockets those of them that are connections.
	Files   int `json:"files"`
	Sockets int `json:"sockets"`
	// Sessions are those of all members in Postgres.
	Sessions int `json:"sessions"`
	MiB      int `json:"mib"`
	// Live is the heap that the last collection found in use, in MiB.
	Live float64 `json:"live_mib"`
}

// What a member may have more than before the first fault: half as much, and some. It has met more brokers since, and its
// pools are as full as they have ever been; what grows with each fault is soon beyond.
const (
	moreGoroutines = 60
	moreFiles      = 25
)

// excess finds what has grown since before. What is open in Postgres is bounded by the pools.
func (s size) excess(before size) (found []string) {
	for _, c := range []struct {
		of          string
		now, before int
		more        int
	}{
		{"goroutines", s.Goroutines, before.Goroutines, moreGoroutines},
		{"open files", s.Files, before.Files, moreFiles},
		{"connections", s.Sockets, before.Sockets, moreFiles},
		{"sessions in Postgres", s.Sessions, before.Sessions, moreFiles},
	} {
		if c.now > c.before*3/2+c.more {
			found = append(found, fmt.Sprintf("an idle member has %d %s, and had %d before the first fault", c.now, c.of, c.before))
		}
	}
	return found
}

// sizes are those of some members, and how many of them have answered.
func sizes(ctx context.Context, s *lab.Site, of []*lab.Slot) (most size, answers int) {
	for _, slot := range of {
		page := read(ctx, slot.Metrics())
		if len(page) > 0 {
			answers++
		}
		most.Goroutines = max(most.Goroutines, int(page.sum("go_goroutines", "")))
		most.Files = max(most.Files, int(page.sum("process_open_fds", "")))
		most.MiB = max(most.MiB, int(page.sum("process_resident_memory_bytes", ""))>>20)
		most.Live = max(most.Live, page.sum("go_gc_heap_live_bytes", "")/(1<<20))
		most.Sockets = max(most.Sockets, sockets(slot.PID()))
	}
	const question = `select count(*) from pg_stat_activity where datname = current_database() and usename = $1`
	_ = ask(ctx, s, question, []any{lab.Role}, &most.Sessions) // 0 where it cannot be asked
	return most, answers
}

// largest are the sizes of some seconds of work.
func largest(ctx context.Context, s *lab.Site, lasts time.Duration) (most size) {
	for end := time.Now().Add(lasts); ; {
		now, _ := sizes(ctx, s, s.Members.Running())
		most = size{
			max(most.Goroutines, now.Goroutines), max(most.Files, now.Files), max(most.Sockets, now.Sockets),
			max(most.Sessions, now.Sessions), max(most.MiB, now.MiB), max(most.Live, now.Live),
		}
		if time.Now().After(end) || !backoff.Wait(ctx, 500*time.Millisecond) {
			return most
		}
	}
}

// settled are the sizes when the members are done, and have had time to let go.
func settled(ctx context.Context, s *lab.Site, before size, patience time.Duration) (now size) {
	for end := time.Now().Add(patience); ; {
		now, _ = sizes(ctx, s, s.Members.Running())
		if len(now.excess(before)) == 0 || time.Now().After(end) || !backoff.Wait(ctx, 500*time.Millisecond) {
			return now
		}
	}
}

// sockets counts a process's connections, where the system has them as files.
func sockets(pid int) (n int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, f := range files {
		if target, err := os.Readlink(f); err == nil && strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}

// page is a process's metrics: series by their names and labels.
type page map[string]float64

// sum adds up a metric's series with a label, "" for all.
func (p page) sum(name, label string) (sum float64) {
	for series, v := range p {
		rest, found := strings.CutPrefix(series, name)
		if found && (rest == "" || rest[0] == '{') && strings.Contains(rest, label) {
			sum += v
		}
	}
	return sum
}

// read gives a page of metrics, an empty one if it cannot be read.
func read(ctx context.Context, addr string) page { return pageOf(readText(ctx, addr)) }

func pageOf(text string) page {
	found := page{}
	for _, line := range strings.Split(text, "\n") {
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || line[0] == '#' {
			continue
		}
		if n, err := strconv.ParseFloat(line[i+1:], 64); err == nil {
			found[line[:i]] = n
		}
	}
	return found
}

func readText(ctx context.Context, addr string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", http.NoBody)
	if err != nil {
		return ""
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer func() { _ = answer.Body.Close() }()
	text, _ := io.ReadAll(answer.Body)
	return string(text)
}

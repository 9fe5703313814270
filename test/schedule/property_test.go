package schedule

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/headrace/headrace/internal/pgtest"
)

const (
	// countEnv is how many schedules TestSchedules runs.
	countEnv     = "HEADRACE_SCHEDULES"
	defaultCount = 240
	// scheduleEnv is the schedule that TestFound runs, as it was printed.
	scheduleEnv = "HEADRACE_SCHEDULE"
	timesEnv    = "HEADRACE_SCHEDULE_TIMES"
	// persistence is how often a schedule is run that may be a smaller one of one that failed: its members are
	// concurrent, and not every run shows what is wrong.
	persistence = 3
)

func TestMain(m *testing.M) {
	flag.Parse()
	// What schedules wait for is seldom the processor.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	pgtest.Main(m)
}

// TestSchedules is the property: whatever happens, the ledger holds.
func TestSchedules(t *testing.T) {
	const lanes = 2
	kinds := []string{applies, calls, queues, batches}
	stores := []string{byID, byOffset}
	count := number(t, countEnv, defaultCount)
	require.NoError(t, flag.Set("rapid.checks", strconv.Itoa(max(1, count/(lanes*len(kinds)*len(stores))))))
	require.NoError(t, flag.Set("rapid.nofailfile", "true"))
	for _, kind := range kinds {
		for _, store := range stores {
			for lane := range lanes {
				t.Run(fmt.Sprintf("%s/%s/%d", kind, store, lane), func(t *testing.T) {
					t.Parallel()
					check(t, kind, store, lane)
				})
			}
		}
	}
}

// check lets rapid look for a schedule that fails, and for the smallest of its kind.
func check(t *testing.T, kind, store string, lane int) {
	t.Helper()
	l := newLab(t)
	least := &smallest{}
	t.Cleanup(func() { least.report(t) })
	times := 1
	rapid.Check(t, func(rt *rapid.T) {
		for range lane { // so that lanes with the same seed run other schedules
			rapid.Uint64().Draw(rt, "lane")
		}
		s := draw(rt, kind, store)
		for range times {
			if findings := l.try(s); len(findings) > 0 {
				least.add(s, findings)
				times = persistence
				class, _, _ := strings.Cut(findings[0], ":")
				rt.Fatalf("%s", class)
			}
		}
	})
}

// smallest is the least of the schedules that failed.
type smallest struct {
	mu       sync.Mutex
	schedule *schedule
	findings []string
}

func (s *smallest) add(failed schedule, findings []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.schedule == nil || len(failed.String()) <= len(s.schedule.String()) {
		s.schedule, s.findings = &failed, findings
	}
}

func (s *smallest) report(t *testing.T) {
	t.Helper()
	if s.schedule != nil {
		t.Logf("the smallest schedule that failed:\n%s\n%s", s.schedule, strings.Join(s.findings, "\n"))
	}
}

func parse(t *testing.T, text string) (s schedule) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &s))
	return s
}

func number(t *testing.T, env string, standard int) int {
	t.Helper()
	text := os.Getenv(env)
	if text == "" {
		return standard
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

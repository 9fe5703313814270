package schedule

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// found are schedules that failed once, or with the engine broken on purpose, by what was seen. They are shrunk, and some
// are written so that they fail in nearly every run.
var found = map[string]string{
	// What is behind garbage was a chain of its own, and did not wait for the failed call before it.
	"ARecordBehindGarbageOvertookAFailedCall": `{"kind":"call","store":"inbox","order":"key","partitions":1,"max_batch":50,
		"lanes":1,"writers":1,"records":[{"id":1,"key":1,"do":"call transient","k":2},{"id":2,"key":1,"do":"garbage"},
		{"id":3,"key":1,"do":"ok"},{"id":4,"key":2,"do":"call slow"}]}`,
	"ACommitThatDidNotArriveWasTakenForDone": `{"kind":"apply","store":"inbox","order":"key","partitions":1,"max_batch":3,
		"lanes":1,"writers":1,"records":[{"id":1,"key":0,"do":"ok"},{"id":2,"key":-1,"do":"ok"},{"id":3,"key":0,"do":"ok"},
		{"id":4,"key":0,"do":"ok"}],"lives":[{"events":[{"on":"commit sent","n":1,"do":"cut"},{"on":"commit sent","n":2,"do":"cut"},
		{"on":"commit sent","n":3,"do":"cut"}]}]}`,
	"OffsetsPassedADeadRecordWithoutItsLetter": `{"kind":"apply","store":"inbox","order":"none","partitions":3,"max_batch":7,
		"lanes":1,"writers":1,"records":[{"id":1,"key":2,"do":"ok"},{"id":2,"key":-1,"do":"sql 23505"},{"id":3,"key":-2,"do":"ok"}],
		"lives":[{"events":[{"on":"produce","n":1,"do":"crash"}]}]}`,
}

// TestFound runs them, or the one in HEADRACE_SCHEDULE.
func TestFound(t *testing.T) {
	t.Parallel()
	schedules, times := found, 3
	if text := os.Getenv(scheduleEnv); text != "" {
		schedules, times = map[string]string{"OfTheEnvironment": text}, 20
	}
	for name, text := range schedules {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			for i := range number(t, timesEnv, times) {
				require.Empty(t, l.try(parse(t, text)), "run %d", i)
			}
		})
	}
}

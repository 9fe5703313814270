package child

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestMain is a child when the driver's side starts it as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && strings.HasPrefix(os.Args[1], "{") {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func serve() error {
	var spec Spec
	if err := json.Unmarshal([]byte(os.Args[1]), &spec); err != nil {
		return err
	}
	return Serve(context.Background(), spec, os.Stdin, os.Stdout, func(ctx context.Context, s *Session) error {
		switch s.Mode {
		case "broken":
			return errors.New("a contender that breaks")
		case "leaves":
			s.Ready()
			return nil
		}
		s.Ready()
		s.First()
		s.Took(0)
		s.Took(time.Now().Add(-time.Second).UnixNano())
		s.Done(s.Records - 1)
		s.Done(1)
		<-ctx.Done()
		return nil
	})
}

func child(t *testing.T, mode string) *Process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p, err := Start([]string{self}, Spec{Mode: mode, Records: 5})
	require.NoError(t, err)
	t.Cleanup(p.Kill)
	return p
}

func TestProcess(t *testing.T) {
	t.Parallel()
	t.Run("TellsHowFarItIsAndItsFigures", func(t *testing.T) {
		t.Parallel()
		p := child(t, "")
		require.NoError(t, p.Ready(t.Context()))
		require.Eventually(t, func() bool { _, begun := p.First(); return begun && p.Seen() == 5 && p.Took() == 1 }, time.Minute, time.Millisecond)
		first, _ := p.First()
		require.WithinDuration(t, time.Now(), first, time.Minute)
		used, err := p.Usage()
		require.NoError(t, err)
		require.Positive(t, used.PeakMB)
		require.NoError(t, p.Err())
		figures, err := p.Stop()
		require.NoError(t, err)
		require.Positive(t, figures.Allocs)
		require.Positive(t, figures.Seconds)
		require.Equal(t, 1, figures.Latencies.Records, "one without a due time warms up")
		require.GreaterOrEqual(t, figures.Latencies.P50, 1000.0)
	})
	t.Run("ThatBreaksIsAnError", func(t *testing.T) {
		t.Parallel()
		p := child(t, "broken")
		require.ErrorContains(t, p.Ready(t.Context()), "the child ended")
		require.Error(t, p.Err())
	})
	t.Run("ThatLeavesUnaskedIsAnError", func(t *testing.T) {
		t.Parallel()
		p := child(t, "leaves")
		require.NoError(t, p.Ready(t.Context()))
		require.Eventually(t, func() bool { return p.Err() != nil }, time.Minute, time.Millisecond)
	})
}

// The peers in Java read these names.
func TestSpecIsTheContract(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(Spec{Topic: "t", Partitions: 8, Options: Options{SleepMaxMS: 5}})
	require.NoError(t, err)
	require.JSONEq(t, `{"bootstrap":"","dsn":"","jdbc":"","topic":"t","group":"","partitions":8,"records":0,"mode":"","options":{"sleep_ms_max":5}}`, string(text))
}

func TestListenIgnoresWhatIsNotTheProtocol(t *testing.T) {
	t.Parallel()
	p := &Process{ready: make(chan struct{})}
	last := p.listen(bytes.NewBufferString("a warning of a library\nREADY\nREADY\nFIRST 17\nFIRST 18\nSEEN 3\n{\"allocs\":4}\n"))
	require.JSONEq(t, `{"allocs":4}`, last)
	first, begun := p.First()
	require.True(t, begun)
	require.Equal(t, int64(17), first.UnixNano())
	require.Equal(t, 3, p.Seen())
}

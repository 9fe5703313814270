package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/test/attack/lab"
)

func operators() []Fault {
	return []Fault{
		{"operator-replays-twice", Operators, replayTwice},
		{"operator-replay-killed", Operators, replayKilled},
	}
}

// command is the operator's, built once.
var command = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "headrace-attack-command-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "headrace")
	out, err := exec.Command("go", "build", "-o", path, "github.com/headrace/headrace/cmd/headrace").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the command: %w: %s", err, out)
	}
	return path, nil
})

// replay begins to replay what is dead of a topic.
func replay(ctx context.Context, s *lab.Site, source string) (*exec.Cmd, error) {
	path, err := command()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, "dlq", "replay", "--brokers", strings.Join(s.Kafka.Brokers(), ","), "--topic", s.Prefix+source+".dlq",
		"--group", s.Group, "--max-replays", "2", "--yes")
	return cmd, cmd.Start()
}

// replayTwice is two operators who do not know of each other.
func replayTwice(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	source := pick(rng, "orders", "offsets", "source")
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	one, err := replay(ctx, s, source)
	if err != nil {
		return err
	}
	two, err := replay(ctx, s, source)
	if err == nil {
		_ = two.Wait() // a letter that could not be sent, a topic that a fault has taken away: it says so, and nothing is lost
	}
	_ = one.Wait()
	return err
}

// replayKilled is one who is killed half way, and tries again.
func replayKilled(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	source := pick(rng, "orders", "offsets", "source")
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	first, err := replay(ctx, s, source)
	if err != nil {
		return err
	}
	backoff.Wait(ctx, between(rng, 0, time.Second))
	_ = first.Process.Kill() // it may have ended
	_ = first.Wait()
	again, err := replay(ctx, s, source)
	if err != nil {
		return err
	}
	_ = again.Wait()
	return nil
}

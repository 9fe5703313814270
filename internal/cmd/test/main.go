// Command test runs the project's tests as go test does, and says in its last lines what this machine could not run.
//
//	go run ./internal/cmd/test [-no-skips] [flags and packages of go test]
//
// It starts the real broker once for all packages when the machine can, prints go test's own lines and the output of
// tests that failed, and ends with a count. With -no-skips a skipped test is a failure.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"time"

	"github.com/headrace/headrace/internal/kafkatest"
)

func main() {
	args := os.Args[1:]
	noSkips := slices.Contains(args, "-no-skips")
	args = slices.DeleteFunc(args, func(arg string) bool { return arg == "-no-skips" })
	// Ctrl-C reaches go test too, for it is in our process group: it ends, and so do we, after it.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	os.Exit(run(args, noSkips, os.Stdout))
}

func run(args []string, noSkips bool, out io.Writer) int {
	missing, stop, err := broker()
	if err != nil {
		fmt.Fprintln(out, err)
		return 1
	}
	result, err := goTest(args, out)
	err = errors.Join(err, stop())
	result.summarise(out, missing)
	switch {
	case err != nil:
		fmt.Fprintln(out, err)
		return 1
	case result.failed > 0, noSkips && len(result.skipped) > 0:
		return 1
	}
	return 0
}

// broker starts the real broker for the tests of every package, or says why there is none.
func broker() (missing string, stop func() error, err error) {
	none := func() error { return nil }
	if os.Getenv(kafkatest.BrokersEnv) != "" {
		return "", none, nil
	}
	if missing := kafkatest.Missing(); missing != "" {
		return missing, none, nil
	}
	cluster, stop, err := kafkatest.Launch(1)
	if err != nil {
		return "", none, err
	}
	return "", stop, os.Setenv(kafkatest.BrokersEnv, cluster.Brokers()[0])
}

// goTest runs go test and reports on its way. That it failed is the report's to say; an error is that it could not run
// or ended without a failed test to show for it.
func goTest(args []string, out io.Writer) (*report, error) {
	started := time.Now()
	cmd := exec.CommandContext(context.Background(), "go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return newReport(out), err
	}
	r := newReport(out)
	if err := cmd.Start(); err != nil {
		return r, err
	}
	readErr := r.read(events)
	err = cmd.Wait()
	r.took = time.Since(started)
	var exit *exec.ExitError
	if errors.As(err, &exit) && r.failed > 0 {
		err = nil
	}
	return r, errors.Join(readErr, err)
}

// install is the one command that adds what is missing.
func install() string {
	if runtime.GOOS == "darwin" {
		return "brew install openjdk@17 maven && make test"
	}
	return "sudo apt-get install -y openjdk-17-jre-headless maven && make test"
}

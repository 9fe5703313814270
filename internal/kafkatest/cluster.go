package kafkatest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/freeport"
)

const (
	// portStep is what lies between the ports of two nodes of a cluster; a node also takes the port above its own.
	portStep     = 10
	portAttempts = 3
	// startTimeout leaves room for a first download on a slow line.
	startTimeout = 10 * time.Minute
)

// Cluster is a running Kafka. It is safe for concurrent use, as far as killing and restarting one node at once makes
// sense. Nodes count from 1.
type Cluster struct {
	brokers []string
	own     bool // of one test: its nodes may be broken
	dir     string
	port    int
	script  string
	cmd     *exec.Cmd
	input   *os.File // its end stops the cluster: it must stay open, and reachable, as long as the cluster is used
}

// Launch starts a cluster outside of a test, with additional server properties ("name=value"). stop ends it; so does the end
// of the process.
func Launch(nodes int, properties ...string) (c *Cluster, stop func() error, err error) {
	c, err = launch(nodes, with(properties...))
	if err != nil {
		return nil, nil, err
	}
	return c, c.stop, nil
}

// launch tries other ports when somebody was faster: freeport looks -> another process listens -> a node cannot bind.
// env gives the script's further variables.
func launch(nodes int, env func(*Cluster) []string) (*Cluster, error) {
	path, err := script()
	if err != nil {
		return nil, err
	}
	for range portAttempts {
		var c *Cluster
		c, err = launchOnce(path, nodes, env)
		if err == nil || !strings.Contains(err.Error(), "Address already in use") {
			return c, err
		}
	}
	return nil, err
}

// with are additional server properties.
func with(properties ...string) func(*Cluster) []string {
	return func(*Cluster) []string { return []string{"KAFKA_PROPS=" + strings.Join(properties, "\n")} }
}

func launchOnce(script string, nodes int, env func(*Cluster) []string) (*Cluster, error) {
	port, err := freeport.Block(nodes, portStep)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "headrace-kafka-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, port: port, script: script}
	list, err := c.hold(nodes, env(c))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c.brokers = strings.Split(list, ",")
	return c, nil
}

// hold runs the script that starts the cluster and ends it when its input ends, and returns the line it prints when the
// cluster is up. No goroutine is left running for it.
func (c *Cluster) hold(nodes int, env []string) (line string, err error) {
	stdin, input, err := os.Pipe()
	if err != nil {
		return "", err
	}
	output, stdout, err := os.Pipe()
	if err != nil {
		return "", errors.Join(err, stdin.Close(), input.Close())
	}
	log, err := os.CreateTemp("", "headrace-kafka-log-")
	if err != nil {
		return "", errors.Join(err, stdin.Close(), input.Close(), output.Close(), stdout.Close())
	}
	defer func() { _ = errors.Join(log.Close(), os.Remove(log.Name()), output.Close()) }()

	c.cmd = c.command("hold", strconv.Itoa(nodes))
	c.cmd.Env = append(c.cmd.Env, env...)
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = stdin, stdout, log
	c.input = input
	ownGroup(c.cmd)
	err = errors.Join(c.cmd.Start(), stdin.Close(), stdout.Close())
	if err != nil {
		return "", errors.Join(err, input.Close())
	}
	_ = output.SetReadDeadline(time.Now().Add(startTimeout))
	line, err = bufio.NewReader(output).ReadString('\n')
	if err != nil {
		stopped := c.stop()
		said, _ := os.ReadFile(log.Name())
		return "", fmt.Errorf("kafkatest: no broker: %w: %s", errors.Join(err, stopped), bytes.TrimSpace(said))
	}
	return strings.TrimSpace(line), nil
}

func (c *Cluster) command(args ...string) *exec.Cmd {
	cmd := exec.Command(c.script, args...)
	cmd.Env = append(os.Environ(), "KAFKA_DIR="+c.dir, "KAFKA_PORT="+strconv.Itoa(c.port))
	return cmd
}

func (c *Cluster) stop() error {
	return errors.Join(c.input.Close(), c.cmd.Wait(), os.RemoveAll(c.dir))
}

// Brokers are the addresses of all nodes.
func (c *Cluster) Brokers() []string { return c.brokers }

// Script is the launcher, test/kafka/kafka.sh, that the cluster was started with.
func (c *Cluster) Script() string { return c.script }

// Kill ends a node with SIGKILL and waits until it is gone. Its data stays.
func (c *Cluster) Kill(t testing.TB, node int) {
	t.Helper()
	c.do(t, "kill", node)
}

// Pause stops a node in its tracks with SIGSTOP: its connections stay and nobody answers.
func (c *Cluster) Pause(t testing.TB, node int) {
	t.Helper()
	c.do(t, "pause", node)
}

// Resume ends a pause.
func (c *Cluster) Resume(t testing.TB, node int) {
	t.Helper()
	c.do(t, "resume", node)
}

// Restart starts a killed node on its data and its port, and returns when it is up.
func (c *Cluster) Restart(t testing.TB, node int) {
	t.Helper()
	c.do(t, "restart", node)
}

// Lose deletes what a killed node has of a partition, as a disk that was lost: restarted, it begins an empty log.
func (c *Cluster) Lose(t testing.TB, node int, topic string, partition int32) {
	t.Helper()
	require.True(t, c.own, "it would break other tests: take a cluster from Start")
	log := filepath.Join(c.dir, strconv.Itoa(node), "data", fmt.Sprintf("%s-%d", topic, partition))
	_, err := os.Stat(log)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(log))
}

func (c *Cluster) do(t testing.TB, verb string, node int) {
	t.Helper()
	require.True(t, c.own, "%s would break other tests: take a cluster from Start", verb)
	require.NoError(t, c.Do(verb, node))
}

// Do is Kill, Pause, Resume or Restart ("kill", "pause", …) outside of a test, on a cluster from Launch.
func (c *Cluster) Do(verb string, node int) error {
	out, err := c.command(verb, strconv.Itoa(node)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("kafkatest: %s node %d: %w: %s", verb, node, err, bytes.TrimSpace(out))
	}
	return nil
}

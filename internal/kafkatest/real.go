package kafkatest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	// BrokersEnv names the environment variable with the real broker to share instead of starting one: addresses
	// separated by commas.
	BrokersEnv = "HEADRACE_TEST_BROKERS"
	// RequireEnv names the environment variable that, set to 1, makes tests on the real broker fail where it cannot be
	// started. CI=true does so too.
	RequireEnv = "HEADRACE_REQUIRE_REAL"
)

const neededJava = 17

// shared is the broker of this process. Nothing stops it: it ends with the input that it was given, when the process
// does.
var shared = sync.OnceValues(func() (*Cluster, error) { return launch(1, with()) })

// Real returns the real broker that the tests of this package share: one node. Topics and consumer groups are the test's
// to keep apart, see [Topic] and [Name].
func Real(t testing.TB) *Cluster {
	t.Helper()
	short(t)
	if brokers := os.Getenv(BrokersEnv); brokers != "" {
		return &Cluster{brokers: strings.Split(brokers, ",")}
	}
	need(t)
	c, err := shared()
	require.NoError(t, err)
	return c
}

// Start starts a cluster of one or three nodes for this test alone, with additional server properties ("name=value"). The
// test's end stops it.
func Start(t testing.TB, nodes int, properties ...string) *Cluster {
	t.Helper()
	return start(t, nodes, with(properties...))
}

func start(t testing.TB, nodes int, env func(*Cluster) []string) *Cluster {
	t.Helper()
	need(t)
	c, err := launch(nodes, env)
	require.NoError(t, err)
	c.own = true
	t.Cleanup(func() { require.NoError(t, c.stop()) })
	return c
}

// short skips the test under -short, which is for who has no time for a broker: but where one is required nothing skips.
func short(t testing.TB) {
	t.Helper()
	if testing.Short() && !required() {
		t.Skip("-short leaves the real broker out")
	}
}

func required() bool { return os.Getenv("CI") == "true" || os.Getenv(RequireEnv) == "1" }

// need skips the test, or fails it where the real broker is required, when there is no way to start one.
func need(t testing.TB) {
	t.Helper()
	short(t)
	switch reason := missing(); {
	case reason == "":
	case required():
		t.Fatalf("the real broker is required here, and %s", reason)
	default:
		t.Skipf("no real broker: %s (make test says how to add it)", reason)
	}
}

// Missing says what this machine lacks to start the real broker, "" if nothing.
func Missing() string { return missing() }

var missing = sync.OnceValue(func() string {
	out, err := exec.Command("java", "-version").CombinedOutput()
	if err != nil {
		return fmt.Sprintf("Java %d is not installed", neededJava)
	}
	if found := javaVersion(string(out)); found < neededJava {
		return fmt.Sprintf("Java %d is needed, found %d", neededJava, found)
	}
	jars, _ := filepath.Glob(filepath.Join(jarCache(), "*", ".complete"))
	if _, err := exec.LookPath("mvn"); err != nil && len(jars) == 0 {
		return "Maven is not installed, nor are Kafka's jars there already"
	}
	return ""
})

var versionPattern = regexp.MustCompile(`version "(?:1\.)?(\d+)`)

// javaVersion reads the major version off "java -version", 0 if there is none.
func javaVersion(text string) int {
	found := versionPattern.FindStringSubmatch(text)
	if found == nil {
		return 0
	}
	major, _ := strconv.Atoi(found[1])
	return major
}

func jarCache() string {
	home, _ := os.UserHomeDir()
	return filepath.Join(home, ".cache", "kafka-local")
}

// script finds kafka.sh above the directory that tests run in, their package's.
func script() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, "test", "kafka", "kafka.sh")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("kafkatest: test/kafka/kafka.sh is not above the working directory")
		}
	}
}

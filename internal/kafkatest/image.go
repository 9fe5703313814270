package kafkatest

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Image is a container of the image apache/kafka, to be run without one.
type Image struct {
	// Env is the container's environment. It is asked for once or more, with the port that the cluster's address is to
	// have, further ones that follow it, and a directory for the data.
	Env func(port int, data string) map[string]string
	// Hosts are the names that the container finds in its network; here each is 127.0.0.1.
	Hosts []string
}

// StartImage starts the broker that a container would run, for this test alone: the image's own code, which is part of
// Kafka, turns the variables into the properties. The test's end stops it.
func StartImage(t testing.TB, image Image) *Cluster {
	t.Helper()
	hosts := filepath.Join(t.TempDir(), "hosts")
	own, err := os.Hostname()
	require.NoError(t, err)
	names := strings.Join(append([]string{"localhost", own}, image.Hosts...), " ")
	require.NoError(t, os.WriteFile(hosts, []byte("127.0.0.1 "+names+"\n"), 0o600))
	return start(t, 1, func(c *Cluster) []string {
		env := image.Env(c.port, filepath.Join(c.dir, "data"))
		var lines []string
		for _, name := range slices.Sorted(maps.Keys(env)) {
			lines = append(lines, name+"="+env[name])
		}
		return []string{
			"KAFKA_CONTAINER=" + strings.Join(lines, "\n"),
			"JDK_JAVA_OPTIONS=" + os.Getenv("JDK_JAVA_OPTIONS") + " -Djdk.net.hosts.file=" + hosts,
		}
	})
}

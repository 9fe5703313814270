package load

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Java is Apache Kafka's own client, run from its source with the jars that kafka.sh has fetched. Starting it takes a few
// seconds, and the first write with it.
func Java(kafkaScript string) Client {
	return Client{Name: "java", Command: []string{kafkaScript, "java", filepath.Join(sources(kafkaScript), "java", "Sender.java")}}
}

// Librdkafka is the C client, with which most languages speak to Kafka. It is built into dir. That needs a C compiler.
func Librdkafka(ctx context.Context, kafkaScript, dir string) (Client, error) {
	program := filepath.Join(dir, "rdkafka")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	cmd.Dir = filepath.Join(sources(kafkaScript), "rdkafka")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=1", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return Client{}, fmt.Errorf("building the client with librdkafka: %w: %s", err, out)
	}
	return Client{Name: "librdkafka", Command: []string{program}}, nil
}

func sources(kafkaScript string) string {
	return filepath.Join(filepath.Dir(kafkaScript), "..", "attack", "load")
}

package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/kafkatest"
)

// The commands on Apache Kafka, whose answers are not always those of the fake.
func TestReal_LettersAreListedShownAndReplayed(t *testing.T) {
	t.Parallel()
	brokers := kafkatest.Real(t).Brokers()
	source := kafkatest.Topic(t, brokers, 4)
	letters := dlq.DefaultTopic(source)
	kafkatest.CreateTopic(t, brokers, letters, 4)
	b := newBedOn(t, brokers)
	for i := range 20 {
		env := exhausted(i)
		env.Origin.Topic, env.Origin.Partition = source, int32(i%4)
		b.produce(letters, env.Origin.Partition, env.LastFailed, []byte("k"), fmt.Appendf(nil, "v%d", i), env.Append(nil)...)
	}
	require.Equal(t, "20 letters: 20 exhausted; consumer group billing\n", lines(b.ok("dlq", "ls", "--topic", letters).out)[21]+"\n")
	require.Equal(t, "v9", b.ok("dlq", "show", "--topic", letters, "--raw", "1/2").out)

	r := b.run("dlq", "replay", "--topic", letters, "--yes")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "add --create-topic")
	r = b.ok("dlq", "replay", "--topic", letters, "--yes", "--create-topic")
	require.Contains(t, r.out, "matched  20\nsent     20  ")
	require.Len(t, kafkatest.ReadAll(t, brokers, dlq.ReplayTopic(source, "billing")), 20)

	r = b.run("dlq", "ls", "--topic", "nowhere.dlq")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, `topic "nowhere.dlq" does not exist`)
}

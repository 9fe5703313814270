package kafka

import (
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// ErrUnknownTopic reports a topic that the cluster does not have, or does not show to this user. Match with errors.Is.
var ErrUnknownTopic = errors.New("unknown topic")

// Forever is the Retention of a topic whose records are never deleted by age.
const Forever time.Duration = -1

// Topic is what the cluster says about a topic.
type Topic struct {
	Name string
	// ID is the topic's id: one that was deleted and created again has another. uuid.Nil before Kafka 2.8.
	ID uuid.UUID
	// Partitions is how many there are, numbered from 0.
	Partitions int
	// Replication is the number of replicas of a partition.
	Replication int
	// Retention is after what age records are deleted, Forever if never.
	Retention time.Duration
	// MaxMessageBytes is the largest batch that the brokers take, as it is on the wire, compressed.
	MaxMessageBytes int
	// CleanupPolicy is "delete", "compact" or both, comma separated.
	CleanupPolicy string
	// MinISR is how many replicas must have a record before a write with acks=all is confirmed.
	MinISR int
}

// Compacted says that the brokers keep only the latest record of a key.
func (t Topic) Compacted() bool { return strings.Contains(t.CleanupPolicy, "compact") }

// Lifetime is how long a record can be read, Forever where nothing is deleted by age: compaction alone does not.
func (t Topic) Lifetime() time.Duration {
	if t.Retention < 0 || t.Compacted() && !strings.Contains(t.CleanupPolicy, "delete") {
		return Forever
	}
	return t.Retention
}

// TopicSpec is a topic to be created.
type TopicSpec struct {
	// Name of the topic. Required.
	Name string
	// Partitions is how many to create. Defaults to the cluster's num.partitions.
	Partitions int
	// Replication is the number of replicas of a partition. Defaults to the cluster's default.replication.factor.
	Replication int
	// Retention is after what age records are deleted, Forever for never. Defaults to the cluster's.
	Retention time.Duration
	// MaxMessageBytes is the largest batch that the brokers take. Defaults to the cluster's.
	MaxMessageBytes int
	// Configs are further configs by Kafka's names; they win over the fields above.
	Configs map[string]string
}

func (s TopicSpec) configs() map[string]*string {
	values := map[string]string{}
	if s.Retention != 0 {
		values["retention.ms"] = retentionMillis(s.Retention)
	}
	if s.MaxMessageBytes > 0 {
		values["max.message.bytes"] = strconv.Itoa(s.MaxMessageBytes)
	}
	maps.Copy(values, s.Configs)
	pointers := make(map[string]*string, len(values))
	for k, v := range values {
		pointers[k] = &v
	}
	return pointers
}

func retentionMillis(d time.Duration) string {
	if d < 0 {
		return "-1"
	}
	return strconv.FormatInt(d.Milliseconds(), 10)
}

// retention reads retention.ms. What a Duration cannot hold (292 years) is as good as for ever.
func retention(ms string) time.Duration {
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil || n < 0 || n > int64((1<<63-1)/time.Millisecond) {
		return Forever
	}
	return time.Duration(n) * time.Millisecond
}

// number is a config's value, 0 for one that the broker does not tell.
func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// orDefault is -1, which asks the broker for its own, in place of an unset count.
func orDefault(n int) int32 {
	if n <= 0 {
		return -1
	}
	return int32(n)
}

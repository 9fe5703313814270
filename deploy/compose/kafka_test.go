package compose

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/internal/kafkatest"
)

// listeners are the broker's, by name, with the ports that compose.yaml gives them.
var listeners = []struct {
	name string
	port int
}{{"OUTSIDE", 9092}, {"INSIDE", 19092}, {"PROXIED", 29092}, {"CONTROLLER", 9093}}

// broker is the stack's, started from Kafka's jars.
type broker struct {
	*kafkatest.Cluster
	ports map[string]int // by listener
}

// startBroker starts it with the environment of compose.yaml, through the code by which the image makes properties of
// it. These things are other than in the container, and no more:
//
//   - each port is a free one instead of 9092, 19092, 29092 or 9093, and Toxiproxy's 29092 another one than the broker's,
//   - it listens on 127.0.0.1 instead of all addresses,
//   - its data is in a directory of the test,
//   - KAFKA_HEAP_OPTS is for a script of the image that is not run.
func startBroker(t *testing.T) *broker {
	t.Helper()
	environment := service(t, "kafka").Environment
	b := &broker{ports: map[string]int{}}
	b.Cluster = kafkatest.StartImage(t, kafkatest.Image{Hosts: []string{"kafka"}, Env: func(port int, data string) map[string]string {
		env := map[string]string{}
		for name, value := range environment {
			env[name] = b.substitute(*value, port)
		}
		b.ports["TOXIPROXY"] = port + len(listeners)
		env["KAFKA_ADVERTISED_LISTENERS"] = strings.ReplaceAll(env["KAFKA_ADVERTISED_LISTENERS"],
			"PROXIED://"+b.addr("localhost", "PROXIED"), "PROXIED://"+b.addr("localhost", "TOXIPROXY"))
		env["KAFKA_LISTENERS"] = strings.ReplaceAll(env["KAFKA_LISTENERS"], "://:", "://127.0.0.1:")
		env["KAFKA_LOG_DIRS"] = data
		return env
	}})
	return b
}

// substitute puts the ports from first on in the place of the container's.
func (b *broker) substitute(value string, first int) string {
	var pairs []string
	for i, l := range listeners {
		b.ports[l.name] = first + i
		pairs = append(pairs, ":"+strconv.Itoa(l.port), ":"+strconv.Itoa(first+i))
	}
	return strings.NewReplacer(pairs...).Replace(value)
}

func (b *broker) addr(host, listener string) string {
	return net.JoinHostPort(host, strconv.Itoa(b.ports[listener]))
}

// TestKafka_ListensWhereItIsSought: a published or proxied port without a listener, or one that advertises another
// place, is found only by the client that hangs there.
func TestKafka_ListensWhereItIsSought(t *testing.T) {
	t.Parallel()
	env := service(t, "kafka").Environment
	require.Equal(t, map[string]string{"INSIDE": ":19092", "OUTSIDE": ":9092", "PROXIED": ":29092", "CONTROLLER": ":9093"},
		parsed(*env["KAFKA_LISTENERS"]))
	require.Equal(t, map[string]string{"INSIDE": "kafka:19092", "OUTSIDE": "localhost:9092", "PROXIED": "localhost:29092"},
		parsed(*env["KAFKA_ADVERTISED_LISTENERS"]))
	require.Equal(t, "/var/lib/kafka/data", *env["KAFKA_LOG_DIRS"])
	require.Equal(t, "kafka", mounted(t, service(t, "kafka"), *env["KAFKA_LOG_DIRS"]))
}

// parsed are a broker's listeners by name.
func parsed(list string) map[string]string {
	found := map[string]string{}
	for l := range strings.SplitSeq(list, ",") {
		name, address, _ := strings.Cut(l, "://")
		found[name] = address
	}
	return found
}

func TestKafka(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	t.Run("FromAnotherContainer", func(t *testing.T) {
		t.Parallel()
		requireServes(t, b.addr("kafka", "INSIDE"), kgo.Dialer(dialNetwork))
	})

	t.Run("FromThisMachine", func(t *testing.T) {
		t.Parallel()
		requireServes(t, b.addr("localhost", "OUTSIDE"))
	})

	t.Run("ThroughToxiproxyUntilItIsCutOff", func(t *testing.T) {
		t.Parallel()
		proxies := startToxiproxy(t, map[string]string{
			"0.0.0.0:29092": b.addr("127.0.0.1", "TOXIPROXY"),
			"kafka:29092":   b.addr("127.0.0.1", "PROXIED"),
		})
		address := b.addr("localhost", "TOXIPROXY")
		requireServes(t, address)
		client := kafkatest.Client(t, []string{address})
		require.NoError(t, client.Ping(t.Context()))
		proxies.enable(t, "kafka", false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, client.Ping(ctx))
		proxies.enable(t, "kafka", true)
		require.NoError(t, client.Ping(t.Context()))
	})

	t.Run("KnowsEveryVariable", func(t *testing.T) {
		t.Parallel()
		known := b.configs(t)
		for name := range service(t, "kafka").Environment {
			if property, is := strings.CutPrefix(name, "KAFKA_"); is && name != "KAFKA_HEAP_OPTS" {
				property = strings.ToLower(strings.ReplaceAll(property, "_", "."))
				_, is := known[property]
				require.True(t, is, "%s: the broker ignores what it does not know", name)
			}
		}
		require.Equal(t, "false", known["auto.create.topics.enable"])
	})

	t.Run("WantsOneCopyOfEachTopic", func(t *testing.T) {
		t.Parallel()
		known := b.configs(t)
		for _, property := range []string{
			"default.replication.factor", "min.insync.replicas", "offsets.topic.replication.factor",
			"transaction.state.log.replication.factor", "transaction.state.log.min.isr",
			"share.coordinator.state.topic.replication.factor", "share.coordinator.state.topic.min.isr",
		} {
			require.Equal(t, "1", known[property], property)
		}
	})

	t.Run("PassesItsHealthCheck", func(t *testing.T) {
		t.Parallel()
		check := service(t, "kafka").HealthCheck.Test
		command := check[len(check)-1]
		require.Contains(t, command, "/opt/kafka/bin/kafka-broker-api-versions.sh --bootstrap-server localhost:9092")
		cmd := exec.CommandContext(t.Context(), "../../test/kafka/kafka.sh", "tool", "BrokerApiVersionsCommand", "--bootstrap-server", b.addr("localhost", "OUTSIDE"))
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, string(said))
	})
}

// configs are the broker's by name. What it does not know itself it reports as sensitive.
func (b *broker) configs(t *testing.T) map[string]string {
	t.Helper()
	described, err := kafkatest.Admin(t, b.Brokers()).DescribeBrokerConfigs(t.Context(), 1)
	require.NoError(t, err)
	found := map[string]string{}
	for _, config := range described[0].Configs {
		if !config.Sensitive {
			found[config.Key] = config.MaybeValue()
		}
	}
	return found
}

// dialNetwork dials as a container does, where kafka is a name.
func dialNetwork(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if host == "kafka" {
		host = "127.0.0.1"
	}
	return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, net.JoinHostPort(host, port))
}

// requireServes: a client that begins at the address is told the same one to go on with, and can do what a consumer
// does: create a topic, produce in a transaction, consume in a group.
func requireServes(t *testing.T, address string, opts ...kgo.Opt) {
	t.Helper()
	seeds := []string{address}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	topic, group := kafkatest.Name(t), kafkatest.Name(t)

	producer := kafkatest.Client(t, seeds, append(slices.Clone(opts), kgo.TransactionalID(kafkatest.Name(t)))...)
	admin := kadm.NewClient(producer)
	metadata, err := admin.BrokerMetadata(ctx)
	require.NoError(t, err)
	require.Len(t, metadata.Brokers, 1)
	require.Equal(t, address, fmt.Sprintf("%s:%d", metadata.Brokers[0].Host, metadata.Brokers[0].Port))
	_, err = admin.CreateTopic(ctx, 2, -1, nil, topic)
	require.NoError(t, err)

	require.NoError(t, producer.BeginTransaction())
	require.NoError(t, producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("order")}).FirstErr())
	require.NoError(t, producer.EndTransaction(ctx, kgo.TryCommit))

	consumer := kafkatest.Client(t, seeds, append(slices.Clone(opts),
		kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	var got []*kgo.Record
	for len(got) == 0 {
		fetches := consumer.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		got = fetches.Records()
	}
	require.Equal(t, "order", string(got[0].Value))
	require.NoError(t, consumer.CommitRecords(ctx, got...))
	committed, err := admin.FetchOffsetsForTopics(ctx, group, topic)
	require.NoError(t, err)
	at, is := committed.Lookup(topic, got[0].Partition)
	require.True(t, is)
	require.Equal(t, got[0].Offset+1, at.At)
	require.Empty(t, underReplicated(ctx, t, admin))
}

// underReplicated are partitions, the broker's own topics' too, that want more copies than the one node can hold.
func underReplicated(ctx context.Context, t *testing.T, admin *kadm.Client) []string {
	t.Helper()
	topics, err := admin.ListTopicsWithInternal(ctx)
	require.NoError(t, err)
	require.True(t, topics.Has("__consumer_offsets") && topics.Has("__transaction_state"))
	var found []string
	topics.EachPartition(func(p kadm.PartitionDetail) {
		if p.Err != nil || len(p.Replicas) != 1 || len(p.ISR) != 1 {
			found = append(found, fmt.Sprintf("%s/%d", p.Topic, p.Partition))
		}
	})
	return found
}

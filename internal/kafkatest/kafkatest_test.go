package kafkatest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

// holderEnv turns the test binary into a process that starts a broker, says where, and waits to be killed.
const holderEnv = "HEADRACE_TEST_HOLDER"

func TestMain(m *testing.M) {
	if os.Getenv(holderEnv) != "" {
		holdCluster()
	}
	goleak.VerifyTestMain(m)
}

func holdCluster() {
	c, _, err := Launch(1)
	if err != nil {
		println("cannot start:", err.Error())
		os.Exit(1)
	}
	println(c.dir, c.brokers[0])
	select {}
}

// TestHelpers is the suite that both kinds of broker pass.
func TestHelpers(t *testing.T) {
	t.Parallel()
	for kind, brokers := range map[string]func(*testing.T) []string{
		"Fake": func(t *testing.T) []string { t.Helper(); return Fake(t).ListenAddrs() },
		"Real": func(t *testing.T) []string { t.Helper(); return Real(t).Brokers() },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			helpers(t, brokers(t))
		})
	}
}

func helpers(t *testing.T, brokers []string) {
	t.Helper()

	t.Run("ReadAllGivesWhatProduceWrote", func(t *testing.T) {
		t.Parallel()
		topic := Topic(t, brokers, 3)
		Produce(
			t, brokers,
			&kgo.Record{Topic: topic, Partition: 2, Value: []byte("last")},
			&kgo.Record{Topic: topic, Partition: 0, Value: []byte("first")},
			&kgo.Record{Topic: topic, Partition: 2, Value: nil, Headers: []kgo.RecordHeader{{Key: "h", Value: nil}}},
		)
		records := ReadAll(t, brokers, topic)
		require.Len(t, records, 3)
		require.Equal(t, "first", string(records[0].Value))
		require.Equal(t, "last", string(records[1].Value))
		require.Nil(t, records[2].Value)
		require.EqualValues(t, 1, records[2].Offset)
		require.Equal(t, "h", records[2].Headers[0].Key)
	})

	t.Run("AKeyStaysOnItsPartition", func(t *testing.T) {
		t.Parallel()
		topic := Topic(t, brokers, 8)
		for range 3 {
			Produce(t, brokers, &kgo.Record{Topic: topic, Partition: 7, Key: []byte("a")})
		}
		records := ReadAll(t, brokers, topic)
		require.Len(t, records, 3)
		require.EqualValues(t, 2, records[2].Offset)
	})

	t.Run("ReadAllEndsOnAnEmptyTopic", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, ReadAll(t, brokers, Topic(t, brokers, 2)))
	})

	t.Run("ReadAllPassesATransactionsMarker", func(t *testing.T) {
		t.Parallel()
		topic := Topic(t, brokers, 1)
		client := Client(t, brokers, kgo.TransactionalID(Name(t)))
		require.NoError(t, client.BeginTransaction())
		require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr())
		require.NoError(t, client.EndTransaction(t.Context(), kgo.TryCommit))
		require.Len(t, ReadAll(t, brokers, topic), 1)
	})

	t.Run("TopicTakesConfigs", func(t *testing.T) {
		t.Parallel()
		topic := Topic(t, brokers, 1, "cleanup.policy", "compact", "retention.ms", "1234567")
		configs, err := Admin(t, brokers).DescribeTopicConfigs(t.Context(), topic)
		require.NoError(t, err)
		found := map[string]string{}
		for _, c := range configs[0].Configs {
			found[c.Key] = c.MaybeValue()
		}
		require.Equal(t, "compact", found["cleanup.policy"])
		require.Equal(t, "1234567", found["retention.ms"])
	})

	t.Run("CommittedGivesTheGroupsOffsets", func(t *testing.T) {
		t.Parallel()
		topic, group := Topic(t, brokers, 2), Name(t)
		require.Empty(t, Committed(t, brokers, group, topic))
		offsets := kadm.Offsets{}
		offsets.AddOffset(topic, 1, 42, -1)
		require.NoError(t, Admin(t, brokers).CommitAllOffsets(t.Context(), group, offsets))
		require.Equal(t, map[int32]int64{1: 42}, Committed(t, brokers, group, topic))
	})
}

func TestReal_IsSharedByTheTestsOfAPackage(t *testing.T) {
	t.Parallel()
	first, second := Real(t), Real(t)
	require.Equal(t, first.Brokers(), second.Brokers())
}

func TestStart_GivesAClusterWhoseNodesCanBeBroken(t *testing.T) {
	t.Parallel()
	c := Start(t, 3, "message.max.bytes=2000000")
	require.Equal(t, "2000000", brokerConfig(t, c, "message.max.bytes"))
	topic := Topic(t, c.Brokers(), 3)
	write := func() { Produce(t, c.Brokers(), &kgo.Record{Topic: topic, Partition: 1}) }
	write()
	c.Kill(t, 2)
	require.Error(t, dial(c.brokers[1]))
	write()
	c.Restart(t, 2)
	require.NoError(t, dial(c.brokers[1]))
	write()
	c.Pause(t, 3)
	require.NoError(t, dial(c.brokers[2]), "the kernel still answers for it")
	c.Resume(t, 3)
	write()
	require.Len(t, ReadAll(t, c.Brokers(), topic), 4)
}

func brokerConfig(t *testing.T, c *Cluster, name string) string {
	t.Helper()
	configs, err := Admin(t, c.Brokers()).DescribeBrokerConfigs(t.Context(), 1)
	require.NoError(t, err)
	for _, config := range configs[0].Configs {
		if config.Key == name {
			return config.MaybeValue()
		}
	}
	return ""
}

func dial(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

func TestLaunch_SaysWhatTheBrokerSaid(t *testing.T) {
	t.Parallel()
	need(t)
	_, err := launch(1, with("num.network.threads=none"))
	require.ErrorContains(t, err, "num.network.threads")
}

func TestLaunch_LeavesNothingBehindWhenItsProcessIsKilled(t *testing.T) {
	t.Parallel()
	need(t)
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holderEnv+"=1")
	out, err := holder.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	dir, addr, _ := strings.Cut(strings.TrimSpace(line), " ")
	require.DirExists(t, dir, line)
	require.NoError(t, dial(addr))

	require.NoError(t, holder.Process.Kill())
	_ = holder.Wait()

	require.Eventually(t, func() bool { return dial(addr) != nil }, time.Minute, 50*time.Millisecond)
	require.Eventually(t, func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	}, time.Minute, 50*time.Millisecond)
}

func TestName_IsLegalAndOnesOwn(t *testing.T) {
	t.Parallel()
	t.Run("a sentence, with (odd) çharacters "+strings.Repeat("long", 100), func(t *testing.T) {
		t.Parallel()
		name := Name(t)
		require.Regexp(t, `^[a-zA-Z0-9-]+$`, name)
		require.LessOrEqual(t, len(name), 249)
		require.NotEqual(t, name, Name(t))
	})
}

func TestJavaVersion(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		`openjdk version "17.0.15" 2025-04-15`: 17,
		`java version "1.8.0_392"`:             8,
		`openjdk version "25" 2025-09-16`:      25,
		`no java here`:                         0,
	} {
		require.Equal(t, want, javaVersion(text), text)
	}
}

// recorder is a testing.TB that notes how a test ended instead of ending it.
type recorder struct {
	testing.TB
	ended string
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return context.Background() }
func (r *recorder) Skipf(format string, args ...any) {
	r.ended = "skip: " + fmt.Sprintf(format, args...)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.ended = "fail: " + fmt.Sprintf(format, args...)
}

// Not parallel: it sets environment variables and the package's answer.
func TestNeed_FailsWhereTheRealBrokerIsRequired(t *testing.T) {
	answer := missing
	defer func() { missing = answer }()
	for name, c := range map[string]struct{ reason, ci, require, want string }{
		"There":    {"", "true", "1", ""},
		"Missing":  {"no Java", "", "", "skip: no real broker: no Java"},
		"InCI":     {"no Java", "true", "", "fail: the real broker is required here, and no Java"},
		"Required": {"no Java", "", "1", "fail: the real broker is required here, and no Java"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CI", c.ci)
			t.Setenv(RequireEnv, c.require)
			missing = func() string { return c.reason }
			r := &recorder{TB: t}
			need(r)
			require.True(t, strings.HasPrefix(r.ended, c.want), r.ended)
			require.Equal(t, c.want == "", r.ended == "")
		})
	}
}

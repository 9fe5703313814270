// Package kafkatest gives tests a Kafka: the real one, or franz-go's in-process fake, with the same helpers for both.
//
//	func TestSource(t *testing.T) {
//		t.Parallel()
//		brokers := kafkatest.Real(t).Brokers() // or kafkatest.Fake(t).ListenAddrs()
//		topic := kafkatest.Topic(t, brokers, 4)
//		kafkatest.Produce(t, brokers, &kgo.Record{Topic: topic, Key: []byte("a"), Value: []byte("1")})
//		…
//		require.Len(t, kafkatest.ReadAll(t, brokers, topic), 1)
//	}
//
// The real broker is Apache Kafka from its jars, started by test/kafka/kafka.sh: no Docker, but Java 17 and, for the first
// start, Maven. The tests of a package share one, started by the first of them, unless HEADRACE_TEST_BROKERS names one.
// A test that kills or pauses nodes takes a cluster of its own from [Start], and one of a container's configuration takes
// the broker that the container would run from [StartImage]. Brokers end with the process that started them, however it
// ends.
//
// Without Java 17 or Maven, tests on the real broker are skipped; with CI=true or HEADRACE_REQUIRE_REAL=1 they fail.
package kafkatest

package outbox

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// Config says how a Forwarder sends. Client is required; the zero value of everything else is a default.
type Config struct {
	// Client says how to reach the cluster. Required.
	Client kafka.ClientConfig
	// Partitioner chooses the partition of an event.
	//
	// Defaults to that of kafka.PublisherConfig: by key as the Java clients do.
	Partitioner kgo.Partitioner
	// Compression is which codecs to use, the preferred first.
	//
	// Defaults to snappy.
	Compression []kgo.CompressionCodec
	// MaxBatch is how many events are sent at once, 10,000 at most.
	//
	// Defaults to 2,000.
	MaxBatch int
	// PollInterval is how often the table is looked at while it is empty and nobody calls Wake. At least 1 ms.
	//
	// Defaults to 50 ms.
	PollInterval time.Duration
	// Timeout is how long the brokers may take to confirm an event before those of its topic are sent again, and the other
	// topics go on without it. At least 1 s.
	//
	// Defaults to 30 s.
	Timeout time.Duration
	// Grace is how long what was sent may take to be confirmed once Run is to end. What is not confirmed by then is sent
	// again by the next forwarder.
	//
	// Defaults to 10 s.
	Grace time.Duration
	// Lease is for how long this forwarder keeps others from sending, which saves work and is no matter of safety. When it
	// dies another one goes on after so long. At least 1 s.
	//
	// Defaults to 10 s.
	Lease time.Duration
	// StatsInterval is how often the table's size is told to Hooks.OnOutbox. At least 1 s.
	//
	// Defaults to 15 s.
	StatsInterval time.Duration
	// AlarmRows is from how many waiting events on it is reported that the outbox is behind.
	//
	// Defaults to 100,000.
	AlarmRows int64
	// AlarmAge is the same for the age of the oldest event.
	//
	// Defaults to 1 min.
	AlarmAge time.Duration
	// Hooks.OnForward and OnOutbox are told what the forwarder does and sees, OnReport what an operator must know.
	//
	// Defaults to none.
	Hooks *record.Hooks
}

func (c Config) withDefaults() Config {
	setDefault(&c.MaxBatch, 2000)
	setDefault(&c.PollInterval, 50*time.Millisecond)
	setDefault(&c.Timeout, 30*time.Second)
	setDefault(&c.Grace, 10*time.Second)
	setDefault(&c.Lease, 10*time.Second)
	setDefault(&c.StatsInterval, 15*time.Second)
	setDefault(&c.AlarmRows, 100_000)
	setDefault(&c.AlarmAge, time.Minute)
	if c.Partitioner == nil {
		c.Partitioner = kgo.UniformBytesPartitioner(64<<10, true, true, nil)
	}
	if c.Hooks == nil {
		c.Hooks = &record.Hooks{}
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// maxBatch is what the client buffers at most.
const maxBatch = 10_000

func (c Config) validate() error {
	if err := c.Client.Validate(); err != nil {
		return err
	}
	if c.MaxBatch < 1 || c.MaxBatch > maxBatch {
		return fmt.Errorf("outbox Config.MaxBatch %d is not between 1 and %d", c.MaxBatch, maxBatch)
	}
	if c.AlarmRows < 0 {
		return fmt.Errorf("outbox Config.AlarmRows %d is negative", c.AlarmRows)
	}
	for _, f := range []struct {
		name         string
		value, least time.Duration
	}{
		{"PollInterval", c.PollInterval, time.Millisecond},
		{"Timeout", c.Timeout, time.Second},
		{"Grace", c.Grace, 0},
		{"Lease", c.Lease, time.Second},
		{"StatsInterval", c.StatsInterval, time.Second},
		{"AlarmAge", c.AlarmAge, 0},
	} {
		if f.value < f.least {
			return fmt.Errorf("outbox Config.%s %s is below %s", f.name, f.value, f.least)
		}
	}
	return nil
}

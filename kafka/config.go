package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/record"
)

// Balancer is how the members of a consumer group share the partitions. All members must agree on one.
type Balancer uint8

const (
	// Cooperative moves only the partitions that change their owner; the others are read on meanwhile.
	Cooperative Balancer = iota
	// Eager takes every partition from every member at each change.
	Eager
	// ServerSide lets the group's coordinator assign, by the protocol of KIP-848: experimental, for Kafka 4.3 and later. Session
	// and heartbeats are then the brokers' to decide, and SessionTimeout is how long the Source waits for a sign of them. A group
	// changes over from the others member by member.
	ServerSide
)

// SourceConfig says what a [Source] reads and how it gives up what it reads. The zero value of everything but Client
// and Group is usable.
type SourceConfig struct {
	// Client is how to reach the cluster. Required.
	Client ClientConfig
	// Group is the consumer group. Required.
	Group string
	// Topics are those that will be subscribed: the Source joins its group once all of them are, so that it does not
	// rebalance for each of them. A topic that is not listed may be subscribed too.
	//
	// Defaults to none: the Source joins 100 ms after the last Subscribe.
	Topics []string
	// Subscriptions is how many subscriptions each topic will have, one for each route that reads it: the Source joins
	// once there are so many. What was settled before a subscription begins it never gets.
	//
	// Defaults to one for each of Topics. Topics of several routes need it, or some may begin too late.
	Subscriptions map[string]int
	// Balancer is how the members share the partitions.
	//
	// Defaults to Cooperative.
	Balancer Balancer
	// InstanceID makes the member a static one: a process that comes back under its id within SessionTimeout gets its partitions
	// back, and nobody else's move. One that stops does not leave, so its partitions idle until it is back, or the session
	// ends. Of two processes of one id the one that was there first ends with an error; in a group of ServerSide members the
	// other is kept out, with a report, until the first one stops, or its session ends.
	//
	// Defaults to none.
	InstanceID string
	// SessionTimeout is how long the broker, and the Source itself, wait for a sign of the other before the claims end.
	//
	// Defaults to 45 s.
	SessionTimeout time.Duration
	// HeartbeatInterval is how often the member reports, and at most how late it learns of a rebalance.
	//
	// Defaults to 1 s.
	HeartbeatInterval time.Duration
	// RebalanceTimeout is how long the broker waits for this member once a rebalance has begun: it must have drained,
	// committed and rejoined within it.
	//
	// Defaults to 60 s.
	RebalanceTimeout time.Duration
	// DrainGrace is how long records that run when their partition is revoked, or when the Source stops, may go on
	// before their contexts end.
	//
	// Defaults to 10 s.
	DrainGrace time.Duration
	// HardGrace is how long a handler whose context has ended may take to return before the claim is closed without it.
	//
	// Defaults to 5 s.
	HardGrace time.Duration
	// CommitReserve is the time within RebalanceTimeout for the last commit of a claim.
	//
	// Defaults to 5 s.
	CommitReserve time.Duration
	// MaxPollInterval is how long one attempt may run before the member gives up: Live fails, it leaves the group and
	// Done is closed, so that another can take over. Waits and holds do not count.
	//
	// Defaults to 5 min.
	MaxPollInterval time.Duration
	// CommitInterval is how often the offsets are committed, beside the commit when a claim ends.
	//
	// Defaults to 1 s.
	CommitInterval time.Duration
	// MaxInFlight caps the records of a partition that are fetched and not settled. Above it the partition is paused, below
	// seven eighths of it resumed. Records that are settled behind one that is not do not count: one key that fails for long, and
	// holds the offset, stops no other.
	//
	// Defaults to 20 times the largest MaxBatch of the topic's subscriptions, at least 2,000.
	MaxInFlight int
	// MaxInFlightBytes caps what the process has fetched from the watermarks on, settled or not, in bytes of memory; each
	// claim has an equal share, all claims of replay topics together that of one, or an eighth if that is less. One fetch of
	// each partition may exceed it.
	//
	// Defaults to 32 MiB.
	MaxInFlightBytes int64
	// OnOffsetLoss is what becomes of a partition whose next record is not in its log any more. Whatever it says, the loss
	// is reported with its numbers; and a log that was cut below what Begin's answer remembers is held, because its new
	// records would pass for those that are done.
	//
	// Defaults to LossHold.
	OnOffsetLoss OffsetLoss
	// Begin is asked where newly assigned partitions begin, with their committed offsets, by whoever remembers records by
	// their offsets. It answers for the partitions whose records it remembers so, even if it knows none yet: one begins
	// where the answer has it, if that is later than the committed offset, and is held and reported as truncated when its
	// log was cut below what is remembered or read. It is called at each assignment, before anything is fetched, and has
	// 3 s. After an error, or too late, the partitions begin at their committed offsets: what was done is read again.
	//
	// Defaults to nil: partitions begin at their committed offsets.
	Begin func(ctx context.Context, at []Start) ([]Start, error)
	// Hooks are told of claims and of what an operator must know.
	//
	// Defaults to reports in the log.
	Hooks *record.Hooks
	// Logger gets what is of use to a developer. What an operator must know goes to Hooks.OnReport, if there are hooks.
	//
	// Defaults to slog.Default().
	Logger *slog.Logger
}

const (
	// fetchMaxWait is what a resume may cost: it waits the fetch in flight out, which asks for the other partitions of the
	// broker, the replay topics for one, and those are empty.
	fetchMaxWait           = 100 * time.Millisecond
	fetchMaxBytes          = 2 << 20 // compressed: measured to become 38 MB
	fetchMaxPartitionBytes = 256 << 10
	maxConcurrentFetches   = 4
	minInFlight            = 2000
	inFlightBatches        = 20
	rebalanceReserve       = time.Second
)

func (c SourceConfig) withDefaults() SourceConfig {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.SessionTimeout, 45*time.Second)
	def(&c.HeartbeatInterval, time.Second)
	def(&c.RebalanceTimeout, time.Minute)
	def(&c.DrainGrace, 10*time.Second)
	def(&c.HardGrace, 5*time.Second)
	def(&c.CommitReserve, 5*time.Second)
	def(&c.MaxPollInterval, 5*time.Minute)
	def(&c.CommitInterval, time.Second)
	if c.MaxInFlightBytes == 0 {
		c.MaxInFlightBytes = 32 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Hooks == nil {
		c.Hooks = &record.Hooks{OnReport: record.LogReports(c.Logger)}
	}
	if c.Client.Logger == nil {
		c.Client.Logger = c.Logger
	}
	return c
}

func (c SourceConfig) validate() error {
	if err := c.Client.Validate(); err != nil {
		return err
	}
	if err := c.OnOffsetLoss.Validate(); err != nil {
		return err
	}
	if c.Group == "" {
		return errors.New("no consumer group: SourceConfig.Group is empty")
	}
	if need := c.DrainGrace + c.HardGrace + c.CommitReserve + c.HeartbeatInterval + rebalanceReserve; need > c.RebalanceTimeout {
		return fmt.Errorf("DrainGrace %s + HardGrace %s + CommitReserve %s + HeartbeatInterval %s + reserve %s = %s exceeds RebalanceTimeout %s by %s",
			c.DrainGrace, c.HardGrace, c.CommitReserve, c.HeartbeatInterval, rebalanceReserve, need, c.RebalanceTimeout, need-c.RebalanceTimeout)
	}
	if c.HeartbeatInterval*3 > c.SessionTimeout {
		return fmt.Errorf("three times HeartbeatInterval %s must fit into SessionTimeout %s", c.HeartbeatInterval, c.SessionTimeout)
	}
	return nil
}

// clientOptions are those of the group member.
//
// Each unsafe default of the client is set right here. A new group begins at the start: the client's own default would
// too, but resets silently when an offset is out of range, below and above; NoResetOffset makes that an error of the
// partition. Aborted transactions are not read. Nothing is marked or committed by the client itself.
func (c SourceConfig) clientOptions() []kgo.Opt {
	balancer := kgo.CooperativeStickyBalancer()
	if c.Balancer == Eager {
		balancer = kgo.RangeBalancer()
	}
	opts := c.Client.Options()
	if c.Balancer == ServerSide {
		balancer = kgo.StickyBalancer()
		opts = append(opts, kgo.ServerSideBalancer())
	}
	if c.InstanceID != "" {
		opts = append(opts, kgo.InstanceID(c.InstanceID))
	}
	return append(opts,
		kgo.ConsumerGroup(c.Group),
		kgo.Balancers(balancer),
		kgo.DisableAutoCommit(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.SessionTimeout(c.SessionTimeout),
		kgo.HeartbeatInterval(c.HeartbeatInterval),
		kgo.RebalanceTimeout(c.RebalanceTimeout),
		kgo.FetchMaxWait(fetchMaxWait),
		kgo.FetchMaxBytes(fetchMaxBytes),
		kgo.FetchMaxPartitionBytes(fetchMaxPartitionBytes),
		kgo.MaxConcurrentFetches(maxConcurrentFetches),
	)
}

package stock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/IBM/sarama"

	"github.com/headrace/headrace/kafka"
)

const (
	dialTimeout     = 10 * time.Second
	metadataMaxAge  = time.Minute
	fetchMaxWait    = 250 * time.Millisecond // a stop and a revoke may wait for the fetch in flight
	fetchRetry      = 500 * time.Millisecond
	joinRetry       = 500 * time.Millisecond
	joinRetries     = 10
	joinAnswerSlack = 10 * time.Second
)

// Config says what a [Subscriber] reads. Source.Client and Source.Group are required; the zero value of the rest is
// usable.
type Config struct {
	// Source is the configuration that a kafka.Source takes. Here Balancer is always eager, InstanceID, MaxInFlight and
	// MaxInFlightBytes do not count (Sarama buffers up to ChannelBufferSize records and a fetch for each partition), and
	// Client.SASL is PLAIN, SCRAM or OAUTHBEARER. Of PLAIN, Sarama asks for the password once, at start.
	Source kafka.SourceConfig
	// Sarama changes the configuration of the client, after Headrace has set it, for example to buffer less. What
	// would lose or skip records is refused: cooperative strategies (watermill-kafka cannot be told of a partition that
	// it loses alone), offsets that are reset by themselves or not committed by Sarama, a group that begins at the end,
	// aborted transactions.
	//
	// Defaults to nil: nothing is changed.
	Sarama func(*sarama.Config)
}

// Transport gives what consumer.Config.Transport takes: the consumer then runs under watermill-kafka's Subscriber.
// change is for Config.Sarama; several are called in order.
func Transport(change ...func(*sarama.Config)) func(kafka.SourceConfig) (kafka.Transport, error) {
	return func(cfg kafka.SourceConfig) (kafka.Transport, error) {
		s, err := NewSubscriber(Config{Source: cfg, Sarama: func(c *sarama.Config) {
			for _, f := range change {
				f(c)
			}
		}})
		if err != nil {
			return nil, err // no typed nil in an interface
		}
		return s, nil
	}
}

// client builds Sarama's configuration from ours, and refuses what the user's changes made unsafe.
func (c Config) client() (*sarama.Config, error) {
	cfg := sarama.NewConfig()
	c.network(cfg)
	c.membership(cfg)
	cfg.Metadata.Full = false // only the topics that are read
	cfg.Metadata.RefreshFrequency = metadataMaxAge
	cfg.Metadata.AllowAutoTopicCreation = false // asking for a topic that was deleted would create it anew
	cfg.Consumer.Return.Errors = true
	cfg.Consumer.MaxWaitTime = fetchMaxWait
	cfg.Consumer.Retry.Backoff = fetchRetry
	cfg.Consumer.IsolationLevel = sarama.ReadCommitted
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest // the default skips what was written before the first start
	cfg.Consumer.Offsets.AutoCommit.Enable = true
	cfg.Consumer.Offsets.AutoCommit.Interval = c.Source.CommitInterval
	if client := c.Source.Client; client.SASL != nil {
		if err := login(cfg, client.SASL); err != nil {
			return nil, err
		}
	}
	if c.Sarama != nil {
		c.Sarama(cfg)
	}
	if err := c.check(cfg); err != nil {
		return nil, err
	}
	return cfg, cfg.Validate()
}

func (c Config) network(cfg *sarama.Config) {
	client := c.Source.Client
	cfg.ClientID = client.ClientID
	if cfg.ClientID == "" {
		cfg.ClientID = "headrace"
	}
	cfg.Net.DialTimeout = dialTimeout
	// The answer to a join comes when the others have drained; with Sarama's own 30 s the member would give up before.
	cfg.Net.ReadTimeout = c.Source.RebalanceTimeout + joinAnswerSlack
	if client.TLS != nil {
		cfg.Net.TLS.Enable, cfg.Net.TLS.Config = true, client.TLS.Clone()
	}
	if client.Dial != nil {
		cfg.Net.Proxy.Enable, cfg.Net.Proxy.Dialer = true, dialer(client.Dial)
	}
}

// membership sets the group's times. ResetInvalidOffsets is off: a committed offset that is not in the log is a problem
// for an operator, see member.check.
func (c Config) membership(cfg *sarama.Config) {
	group := &cfg.Consumer.Group
	group.Session.Timeout = c.Source.SessionTimeout
	group.Heartbeat.Interval = c.Source.HeartbeatInterval
	group.Rebalance.Timeout = c.Source.RebalanceTimeout
	group.Rebalance.Retry.Max, group.Rebalance.Retry.Backoff = joinRetries, joinRetry
	// Range is also what a kafka.Source with Balancer kafka.Eager speaks, so that a group can change over without a stop.
	group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	group.ResetInvalidOffsets = false
}

// check refuses what would lose records.
func (c Config) check(cfg *sarama.Config) error {
	var errs []error
	refuse := func(is bool, why string) {
		if is {
			errs = append(errs, errors.New(why))
		}
	}
	refuse(cfg.Consumer.Group.ResetInvalidOffsets, "Consumer.Group.ResetInvalidOffsets skips or repeats records silently; leave it false")
	refuse(!cfg.Consumer.Offsets.AutoCommit.Enable, "Consumer.Offsets.AutoCommit.Enable is off, which commits once a record; leave it on (only settled records are marked)")
	refuse(cfg.Consumer.Offsets.Initial != sarama.OffsetOldest, "Consumer.Offsets.Initial skips what was written before the group's first start; leave it OffsetOldest")
	refuse(cfg.Consumer.IsolationLevel != sarama.ReadCommitted, "Consumer.IsolationLevel reads aborted transactions; leave it ReadCommitted")
	refuse(!cfg.Consumer.Return.Errors, "Consumer.Return.Errors is off, which hides errors; leave it on")
	for _, s := range strategies(cfg) {
		refuse(s.Name() == sarama.CooperativeStickyBalanceStrategyName,
			"a cooperative balance strategy takes partitions away without telling watermill-kafka; use an eager one (range, roundrobin, sticky)")
	}
	return errors.Join(errs...)
}

func strategies(cfg *sarama.Config) []sarama.BalanceStrategy {
	if s := cfg.Consumer.Group.Rebalance.Strategy; s != nil { // deprecated, and it still wins
		return []sarama.BalanceStrategy{s}
	}
	return cfg.Consumer.Group.Rebalance.GroupStrategies
}

// dialer is ClientConfig.Dial as Sarama wants it, which puts TLS on top itself.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// Dial implements proxy.Dialer.
func (d dialer) Dial(network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	return d(ctx, network, addr)
}

// resolve gives c with its defaults.
func (c Config) resolve() (Config, *sarama.Config, error) {
	source, err := c.Source.Resolve()
	if err != nil {
		return c, nil, fmt.Errorf("kafka stock: %w", err)
	}
	c.Source = source
	client, err := c.client()
	if err != nil {
		return c, nil, fmt.Errorf("kafka stock: %w", err)
	}
	return c, client, nil
}

package consumer

import (
	"errors"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/kafka"
)

func (c *Consumer) inboxConfig() dedup.Config {
	return dedup.Config{
		Writers: c.cfg.Writers, MaxBatch: largestBatch(c.specs), MaxBatchTime: c.cfg.MaxBatchTime,
		HardGrace: c.cfg.HardGrace, CommitTimeout: c.cfg.CommitReserve, ApplicationName: c.applicationName(),
		Hooks: c.hooks, Logger: c.cfg.Logger,
	}
}

// applicationName is what our own sessions are called in pg_stat_activity, where Config.DB does not name them.
func (c *Consumer) applicationName() string { return "headrace " + c.cfg.Group }

func (c *Consumer) letterConfig() dlq.WriterConfig {
	return dlq.WriterConfig{
		Client: c.cfg.client(), Group: c.cfg.Group, Timeout: c.cfg.DeadLetterTimeout, Hooks: c.hooks, Logger: c.cfg.Logger,
		Topic: func(source string) string { return source + dlq.Suffix }, // each letter names its own
	}
}

// errNoTransport is Config.Transport's fault.
var errNoTransport = errors.New("Config.Transport gave neither a transport nor an error")

// transport makes what delivers. In place of one that failed it gives a nil interface: nobody may try to stop it.
func (e *engine) transport() (kafka.Transport, error) {
	cfg := e.c.sourceConfig()
	if slices.ContainsFunc(e.c.specs, spec.byOffset) {
		cfg.Begin = e.begin
	}
	made, err := e.c.cfg.Transport(cfg)
	if err != nil {
		return nil, err
	}
	if made == nil {
		return nil, errNoTransport
	}
	return made, nil
}

// source is the default transport.
func source(cfg kafka.SourceConfig) (kafka.Transport, error) { return kafka.NewSource(cfg) }

func (c *Consumer) sourceConfig() kafka.SourceConfig {
	return kafka.SourceConfig{
		Client: c.cfg.client(), Group: c.cfg.Group, Topics: c.inputs(), Subscriptions: c.subscriptions(),
		Balancer: c.cfg.Balancer, InstanceID: c.cfg.InstanceID, OnOffsetLoss: c.cfg.OnOffsetLoss,
		SessionTimeout: c.cfg.SessionTimeout, HeartbeatInterval: c.cfg.HeartbeatInterval,
		RebalanceTimeout: c.cfg.RebalanceTimeout, DrainGrace: c.cfg.DrainGrace, HardGrace: c.cfg.HardGrace,
		CommitReserve: c.cfg.CommitReserve, MaxPollInterval: c.cfg.MaxPollInterval, CommitInterval: c.cfg.CommitInterval,
		MaxInFlight: c.cfg.MaxInFlight, MaxInFlightBytes: c.cfg.MaxInFlightBytes, Hooks: c.hooks, Logger: c.cfg.Logger,
	}
}

// routerConfig gives the router longer than the source needs: on its own time-out it would return nil and leave
// handlers behind.
func (c *Consumer) routerConfig() message.RouterConfig {
	return message.RouterConfig{CloseTimeout: c.cfg.DrainGrace + c.cfg.HardGrace + c.cfg.CommitReserve}
}

// gate is of a dependency that all routes share: one of them probes for all. A probe is over when its attempt must be,
// the call before it included.
func (c *Consumer) gate(dependency string) *downstream.Gate {
	longest := time.Duration(0)
	for _, s := range c.specs {
		longest = max(longest, add(s.callTimeout(), s.options.AttemptTimeout))
	}
	return downstream.NewGate(downstream.GateConfig{Name: dependency, ProbeTimeout: c.probeTimeout(longest)})
}

func (c *Consumer) probeTimeout(attempt time.Duration) time.Duration {
	return 2*attempt + c.cfg.HardGrace
}

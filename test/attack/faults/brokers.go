package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/test/attack/lab"
)

func brokers() []Fault {
	return []Fault{
		{"broker-kill-leader", Brokers, killLeader},
		{"broker-kill-coordinator", Brokers, killCoordinator},
		{"broker-no-quorum", Brokers, killTwo},
		{"broker-pause", Brokers, pauseBroker},
		{"broker-roll", Brokers, rollBrokers},
		{"broker-elections", Brokers, electLeaders},
	}
}

// killed is a node that is away for a while.
func killed(ctx context.Context, s *lab.Site, rng *rand.Rand, nodes ...int) error {
	for _, node := range nodes {
		if err := s.Kafka.Do("kill", node); err != nil {
			return err
		}
	}
	backoff.Wait(ctx, between(rng, time.Second, 8*time.Second))
	back := make(chan error, len(nodes))
	for _, node := range nodes {
		go func() { back <- s.Kafka.Do("restart", node) }()
	}
	var errs []error
	for range nodes {
		errs = append(errs, <-back)
	}
	return errors.Join(errs...)
}

// killLeader kills the one that leads a partition of a topic that is read.
func killLeader(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	node := 1 + rng.IntN(lab.Nodes)
	name := s.Prefix + pick(rng, "orders", "offsets", "source", "events")
	if topics, err := s.Admin.ListTopics(ctx, name); err == nil {
		if leader := int(topics[name].Partitions[0].Leader); leader > 0 {
			node = leader
		}
	}
	return killed(ctx, s, rng, node)
}

// killCoordinator kills the one that keeps the group.
func killCoordinator(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	node := 1 + rng.IntN(lab.Nodes)
	if groups, err := s.Admin.DescribeGroups(ctx, s.Group); err == nil {
		if coordinator := int(groups[s.Group].Coordinator.NodeID); coordinator > 0 {
			node = coordinator
		}
	}
	return killed(ctx, s, rng, node)
}

// killTwo leaves a minority, which takes nothing.
func killTwo(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	alive := 1 + rng.IntN(lab.Nodes)
	var nodes []int
	for node := 1; node <= lab.Nodes; node++ {
		if node != alive {
			nodes = append(nodes, node)
		}
	}
	return killed(ctx, s, rng, nodes...)
}

// pauseBroker is one that hangs: its connections stay.
func pauseBroker(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	node := 1 + rng.IntN(lab.Nodes)
	if err := s.Kafka.Do("pause", node); err != nil {
		return err
	}
	backoff.Wait(ctx, between(rng, 2*time.Second, 12*time.Second)) // it is fenced after 6 s
	return s.Kafka.Do("resume", node)
}

// rollBrokers restarts all of them, one after the other.
func rollBrokers(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	for _, i := range rng.Perm(lab.Nodes) {
		if err := killed(ctx, s, rng, i+1); err != nil || ctx.Err() != nil {
			return err
		}
	}
	return nil
}

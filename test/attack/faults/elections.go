package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/test/attack/lab"
)

// electLeaders has another leader for each partition of a topic, and no node away: the replica that is to lead becomes another
// one, and is elected.
func electLeaders(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	name := pick(rng, s.Prefix+"orders", s.Prefix+"offsets", s.Prefix+"source", s.Prefix+"events", "__consumer_offsets")
	topics, err := s.Admin.ListTopics(ctx, name)
	if err != nil {
		return err
	}
	to, all := kadm.AlterPartitionAssignmentsReq{}, kadm.TopicsSet{}
	for _, p := range topics[name].Partitions {
		if n := len(p.Replicas); n > 1 {
			to.Assign(name, p.Partition, append(p.Replicas[1:n:n], p.Replicas[0]))
			all.Add(name, p.Partition)
		}
	}
	ctx = context.WithoutCancel(ctx)
	assigned, err := s.Admin.AlterPartitionAssignments(ctx, to)
	if err := errors.Join(err, assigned.Error()); err != nil {
		return err
	}
	backoff.Wait(ctx, 200*time.Millisecond) // the controller takes the new order over by itself, without copying anything
	_, err = s.Admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, all)
	backoff.Wait(ctx, between(rng, time.Second, 3*time.Second))
	return err
}

package faults

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/test/attack/lab"
)

// taps are faults of single connections and of single answers.
func taps() []Fault {
	return []Fault{
		{"network-half-open", Brokers, halfOpen(brokerWires)},
		{"database-half-open", Database, halfOpen(databaseWire)},
		{"network-lost-produce", Brokers, loseAnswers(kmsg.Produce, kmsg.InitProducerID)},
		{"network-lost-offset-commit", Brokers, loseAnswers(kmsg.OffsetCommit)},
		{"network-lost-membership", Brokers, loseAnswers(kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.ConsumerGroupHeartbeat)},
	}
}

// halfOpen leaves what is connected without its other side, again and again: a server goes on with transactions whose clients
// have given up, and clients wait for servers that they will not hear of.
func halfOpen(of wires) func(context.Context, *lab.Site, *rand.Rand) error {
	return func(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
		for range 1 + rng.IntN(3) {
			for _, w := range of(s, rng) {
				defer w.Tap.Freeze()()
			}
			if !backoff.Wait(ctx, between(rng, time.Second, 6*time.Second)) {
				break
			}
		}
		return nil
	}
}

// loseAnswers has the brokers do what these requests say, and nobody hear of it.
func loseAnswers(keys ...kmsg.Key) func(context.Context, *lab.Site, *rand.Rand) error {
	return func(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
		resets := rng.IntN(2) == 0
		for _, w := range brokerWires(s, rng) {
			defer w.Tap.Lose(resets, keys...)()
		}
		backoff.Wait(ctx, between(rng, 200*time.Millisecond, 8*time.Second))
		return nil
	}
}

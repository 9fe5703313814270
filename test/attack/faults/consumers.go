package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/test/attack/lab"
	"github.com/headrace/headrace/test/attack/member"
)

func consumers() []Fault {
	return []Fault{
		{"consumer-kill", Consumers, killConsumer},
		{"consumer-pause", Consumers, pauseConsumer},
		{"consumer-term", Consumers, termConsumer},
		{"consumer-roll", Consumers, rollConsumers},
		{"consumer-scale", Consumers, scaleConsumers},
		{"consumer-rebalance-protocol", Consumers, changeProtocol},
		{"consumer-static", Consumers, makeStatic},
		{"consumer-bad-deploy", Consumers, badDeploy},
	}
}

// some is a slot that may be up.
func some(s *lab.Site, rng *rand.Rand) *lab.Slot { return s.Members.Slots[rng.IntN(lab.Slots)] }

// killConsumer is a SIGKILL; the process is started again at once.
func killConsumer(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	some(s, rng).Signal(syscall.SIGKILL)
	backoff.Wait(ctx, between(rng, time.Second, 4*time.Second))
	return nil
}

// pauseConsumer makes a zombie: its partitions go to others, and then it goes on in the middle of what it did.
func pauseConsumer(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	slot := some(s, rng)
	slot.Signal(syscall.SIGSTOP)
	backoff.Wait(ctx, between(rng, 3*time.Second, 15*time.Second)) // a session is 6 s
	slot.Signal(syscall.SIGCONT)
	return nil
}

func termConsumer(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	slot := some(s, rng)
	if !slot.Running() {
		return slot.Up()
	}
	err := slot.Term()
	backoff.Wait(ctx, between(rng, 0, 2*time.Second))
	return errors.Join(err, slot.Up())
}

// rollConsumers is a deployment.
func rollConsumers(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	for _, slot := range s.Members.Running() {
		if err := errors.Join(slot.Term(), slot.Up()); err != nil {
			return err
		}
		if !backoff.Wait(ctx, between(rng, 500*time.Millisecond, 2*time.Second)) {
			return nil
		}
	}
	return nil
}

// changeProtocol rolls to another kind of rebalance, one member after the other. Between eager and cooperative those that have
// changed cannot join before all have; to and from the coordinator's own (KIP-848) the group changes over member by member.
func changeProtocol(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	to := pick(rng, kafka.Cooperative, kafka.Eager, kafka.ServerSide)
	s.Members.Configure(func(_ int, c *member.Config) { c.Balancer = to })
	return replaceAll(ctx, s, rng) // or a group of two kinds would never get on
}

// replaceAll is a deployment that is not given up half way.
func replaceAll(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	var errs []error
	for _, slot := range s.Members.Running() {
		errs = append(errs, slot.Term(), slot.Up())
		backoff.Wait(ctx, between(rng, 0, 2*time.Second))
	}
	return errors.Join(errs...)
}

// makeStatic rolls to static members or back, and then restarts some of them, as a StatefulSet does.
func makeStatic(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	static := rng.IntN(3) > 0
	s.Members.Configure(func(slot int, c *member.Config) {
		if c.InstanceID = ""; static {
			c.InstanceID = fmt.Sprintf("slot-%d", slot)
		}
	})
	for range 2 {
		if err := rollConsumers(ctx, s, rng); err != nil {
			return err
		}
	}
	return nil
}

// scaleConsumers is what an autoscaler does.
func scaleConsumers(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	for _, n := range []int{1, lab.Slots, 1 + rng.IntN(lab.Slots)} {
		if err := s.Members.Scale(n); err != nil {
			return err
		}
		if !backoff.Wait(ctx, between(rng, time.Second, 4*time.Second)) {
			return nil
		}
	}
	return nil
}

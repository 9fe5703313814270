package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/headrace/headrace/test/attack/lab"
)

func consumers() []Fault {
	return []Fault{
		{"consumer-kill", Consumers, killConsumer},
		{"consumer-pause", Consumers, pauseConsumer},
		{"consumer-term", Consumers, termConsumer},
		{"consumer-roll", Consumers, rollConsumers},
		{"consumer-scale", Consumers, scaleConsumers},
	}
}

// some is a slot that may be up.
func some(s *lab.Site, rng *rand.Rand) *lab.Slot { return s.Members.Slots[rng.IntN(lab.Slots)] }

// killConsumer is a SIGKILL; the process is started again at once.
func killConsumer(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	some(s, rng).Signal(syscall.SIGKILL)
	hold(ctx, between(rng, time.Second, 4*time.Second))
	return nil
}

// pauseConsumer makes a zombie: its partitions go to others, and then it goes on in the middle of what it did.
func pauseConsumer(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	slot := some(s, rng)
	slot.Signal(syscall.SIGSTOP)
	hold(ctx, between(rng, 3*time.Second, 15*time.Second)) // a session is 6 s
	slot.Signal(syscall.SIGCONT)
	return nil
}

func termConsumer(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	slot := some(s, rng)
	if !slot.Running() {
		return slot.Up()
	}
	err := slot.Term()
	hold(ctx, between(rng, 0, 2*time.Second))
	return errors.Join(err, slot.Up())
}

// rollConsumers is a deployment.
func rollConsumers(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	for _, slot := range s.Members.Running() {
		if err := errors.Join(slot.Term(), slot.Up()); err != nil {
			return err
		}
		if !hold(ctx, between(rng, 500*time.Millisecond, 2*time.Second)) {
			return nil
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
		if !hold(ctx, between(rng, time.Second, 4*time.Second)) {
			return nil
		}
	}
	return nil
}

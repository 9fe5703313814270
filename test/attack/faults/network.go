package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/test/attack/lab"
)

// network are faults of the ways, to the brokers and to the database alike.
func network() []Fault {
	var all []Fault
	for name, strike := range map[string]func(*rand.Rand) []lab.Toxic{
		"blackhole": blackhole, "lost-replies": lostReplies, "latency": latency, "no-bandwidth": noBandwidth,
		"cut-replies": cutReplies, "reset": reset,
	} {
		all = append(all, Fault{"network-" + name, Brokers, poison(brokerWires, strike)})
		all = append(all, Fault{"database-" + name, Database, poison(databaseWire, strike)})
	}
	return append(all, Fault{"network-refused", Brokers, refused(brokerWires)}, Fault{"database-refused", Database, refused(databaseWire)})
}

type wires func(*lab.Site, *rand.Rand) []*lab.Wire

// brokerWires are one or all of the ways to the brokers.
func brokerWires(s *lab.Site, rng *rand.Rand) []*lab.Wire {
	if rng.IntN(2) == 0 {
		return s.Network
	}
	return []*lab.Wire{pick(rng, s.Network...)}
}

func databaseWire(s *lab.Site, _ *rand.Rand) []*lab.Wire { return []*lab.Wire{s.Database} }

// poison puts the toxics on the wires for a while.
func poison(of wires, with func(*rand.Rand) []lab.Toxic) func(context.Context, *lab.Site, *rand.Rand) error {
	return func(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
		var errs []error
		toxics := with(rng)
		for _, w := range of(s, rng) {
			mend, err := w.Poison(toxics...)
			errs = append(errs, err)
			if err == nil {
				defer func() { _ = mend() }() // its only error is that the toxic is gone
			}
		}
		backoff.Wait(ctx, between(rng, time.Second, 12*time.Second))
		return errors.Join(errs...)
	}
}

// refused cuts the wires and refuses connections.
func refused(of wires) func(context.Context, *lab.Site, *rand.Rand) error {
	return func(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
		var mends []func() error
		for _, w := range of(s, rng) {
			mends = append(mends, w.Cut())
		}
		backoff.Wait(ctx, between(rng, 200*time.Millisecond, 8*time.Second))
		var errs []error
		for _, mend := range mends {
			errs = append(errs, mend())
		}
		return errors.Join(errs...)
	}
}

// blackhole lets nothing through, in either direction; connections stay.
func blackhole(*rand.Rand) []lab.Toxic {
	return []lab.Toxic{
		{Type: "timeout", Stream: lab.Requests, Attributes: map[string]any{"timeout": 0}},
		{Type: "timeout", Stream: lab.Replies, Attributes: map[string]any{"timeout": 0}},
	}
}

// lostReplies lets everything be done, and nobody hear of it.
func lostReplies(*rand.Rand) []lab.Toxic {
	return []lab.Toxic{{Type: "timeout", Stream: lab.Replies, Attributes: map[string]any{"timeout": 0}}}
}

// cutReplies ends each connection in the middle of its answers.
func cutReplies(rng *rand.Rand) []lab.Toxic {
	return []lab.Toxic{{Type: "limit_data", Stream: lab.Replies, Attributes: map[string]any{"bytes": 500 + rng.IntN(50_000)}}}
}

func latency(rng *rand.Rand) []lab.Toxic {
	ms := 20 + rng.IntN(800)
	return []lab.Toxic{{Type: "latency", Stream: lab.Replies, Attributes: map[string]any{"latency": ms, "jitter": ms / 2}}}
}

// noBandwidth keeps what is sent, and delivers it in the end.
func noBandwidth(rng *rand.Rand) []lab.Toxic {
	return []lab.Toxic{{Type: "bandwidth", Stream: pick(rng, lab.Requests, lab.Replies), Attributes: map[string]any{"rate": 0}}}
}

// reset resets what is connected a while after its first byte.
func reset(rng *rand.Rand) []lab.Toxic {
	return []lab.Toxic{{Type: "reset_peer", Stream: pick(rng, lab.Requests, lab.Replies), Attributes: map[string]any{"timeout": rng.IntN(1500)}}}
}

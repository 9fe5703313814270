package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/test/attack/lab"
	"github.com/headrace/headrace/test/attack/member"
)

// badDeploy rolls to handlers that fail everything, and back. The flood guard must hold what was not dead by then, and all of
// it has its effect in the end.
func badDeploy(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	err := deploy(ctx, s, rng, pick(rng, member.Fails, member.Panics))
	if err == nil {
		err = flood(ctx, s, rng)
	}
	backoff.Wait(ctx, between(rng, time.Second, 6*time.Second))
	return errors.Join(err, deploy(context.WithoutCancel(ctx), s, rng, ""))
}

func deploy(ctx context.Context, s *lab.Site, rng *rand.Rand, bug member.Bug) error {
	s.Members.Configure(func(_ int, c *member.Config) { c.Bug = bug })
	return replaceAll(ctx, s, rng)
}

// flood writes far more than the guard may let through, and waits until what dies first is dead.
func flood(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	const records, patience = 1500, 20 * time.Second
	letters := member.Deployed(s.Prefix) + ".dlq"
	before, err := end(ctx, s, letters)
	if err != nil {
		return err
	}
	if err := fill(ctx, s, rng, member.Deployed(s.Prefix), records); err != nil {
		return err
	}
	for deadline := time.Now().Add(patience); ; {
		now, err := end(ctx, s, letters)
		if err != nil || now-before >= member.FloodRun || !backoff.Wait(ctx, 200*time.Millisecond) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d records have died %s after a bad deploy", now-before, patience)
		}
	}
}

// end adds up where a topic's partitions end.
func end(ctx context.Context, s *lab.Site, topic string) (sum int64, err error) {
	ends, err := s.Admin.ListEndOffsets(ctx, topic)
	ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
	return sum, errors.Join(err, ends.Error())
}

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

// everybody is who comes without a login, as all do here.
const everybody = "User:ANONYMOUS"

// forbidLetters takes the permission to write to the dead letter topics away, or to know of them.
func forbidLetters(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	rule := func() *kadm.ACLBuilder {
		return kadm.NewACLs().Topics(letterTopics(s)...).ResourcePatternType(kadm.ACLPatternLiteral)
	}
	rules := []*kadm.ACLBuilder{rule().Deny(everybody).DenyHosts("*").Operations(kadm.OpWrite)}
	if rng.IntN(3) == 0 {
		rules[0].Operations(kadm.OpWrite, kadm.OpDescribe)
	}
	// Where one is written down, nothing else is allowed by itself.
	rules = append(rules, rule().Allow(everybody).AllowHosts("*").Operations(kadm.OpAll))
	err := permit(ctx, s, rules)
	if err == nil {
		backoff.Wait(ctx, between(rng, 3*time.Second, 12*time.Second))
	}
	return errors.Join(err, forget(context.WithoutCancel(ctx), s, rules))
}

func permit(ctx context.Context, s *lab.Site, rules []*kadm.ACLBuilder) error {
	var errs []error
	for _, rule := range rules {
		made, err := s.Admin.CreateACLs(ctx, rule)
		errs = append(errs, err)
		for _, m := range made {
			errs = append(errs, m.Err)
		}
	}
	return errors.Join(errs...)
}

// forget removes the rules, the first one first.
func forget(ctx context.Context, s *lab.Site, rules []*kadm.ACLBuilder) error {
	var errs []error
	for _, rule := range rules {
		gone, err := s.Admin.DeleteACLs(ctx, rule)
		errs = append(errs, err)
		for _, g := range gone {
			errs = append(errs, g.Err)
		}
	}
	return errors.Join(errs...)
}

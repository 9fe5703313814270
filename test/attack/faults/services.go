package faults

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/test/attack/lab"
)

func services() []Fault {
	return []Fault{
		{"service-late", Services, service(lab.Late)},
		{"service-failing", Services, service(lab.Failing)},
		{"service-away", Services, service(lab.Away)},
	}
}

// service is an outage of what is called: of those whose fate is an effect nobody may die of it.
func service(m lab.Mood) func(context.Context, *lab.Site, *rand.Rand) error {
	return func(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
		mend, err := s.Service.Be(m)
		if err != nil {
			return err
		}
		backoff.Wait(ctx, between(rng, time.Second, 12*time.Second))
		return mend()
	}
}

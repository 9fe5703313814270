package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/headrace/headrace/test/attack/lab"
)

func letters() []Fault {
	return []Fault{
		{"letters-too-large", Brokers, letterTopic("max.message.bytes", "50")},
		{"letters-too-few-replicas", Brokers, letterTopic("min.insync.replicas", "4")},
	}
}

// letterTopic gives the dead letter topics a configuration under which they take nothing.
func letterTopic(name, value string) func(context.Context, *lab.Site, *rand.Rand) error {
	return func(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
		topics := []string{s.Prefix + "orders.dlq", s.Prefix + "offsets.dlq", s.Prefix + "source.dlq"}
		before := map[string]*string{"max.message.bytes": nil, "min.insync.replicas": nil}
		described, err := s.Admin.DescribeTopicConfigs(ctx, topics...)
		if err != nil {
			return err
		}
		for _, d := range described {
			for _, c := range d.Configs {
				if c.Key == name && c.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
					before[name] = c.Value
				}
			}
		}
		if err := alter(ctx, s, topics, kadm.AlterConfig{Name: name, Value: &value}); err != nil {
			return err
		}
		hold(ctx, between(rng, 2*time.Second, 10*time.Second))
		mend := kadm.AlterConfig{Name: name, Value: before[name]}
		if mend.Value == nil {
			mend.Op = kadm.DeleteConfig
		}
		return alter(context.WithoutCancel(ctx), s, topics, mend)
	}
}

func alter(ctx context.Context, s *lab.Site, topics []string, c kadm.AlterConfig) error {
	altered, err := s.Admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{c}, topics...)
	errs := []error{err}
	for _, a := range altered {
		errs = append(errs, a.Err)
	}
	return errors.Join(errs...)
}

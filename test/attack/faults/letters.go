package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/test/attack/audit"
	"github.com/headrace/headrace/test/attack/lab"
)

func letters() []Fault {
	return []Fault{
		{"letters-too-large", Brokers, letterTopic("max.message.bytes", tooLarge, aWhile)},
		{"letters-too-few-replicas", Brokers, letterTopic("min.insync.replicas", strconv.Itoa(lab.Nodes), withoutANode)},
		{"letters-missing", Brokers, deleteLetters},
		{"letters-forbidden", Brokers, forbidLetters},
	}
}

// tooLarge is the max.message.bytes of a topic that takes no letter. min.insync.replicas above the number of replicas does not
// do it: brokers take it for that number.
const tooLarge = "50"

func aWhile(ctx context.Context, _ *lab.Site, rng *rand.Rand) error {
	backoff.Wait(ctx, between(rng, 2*time.Second, 10*time.Second))
	return nil
}

// withoutANode kills one for longer than it takes to fence it, which is 6 s.
func withoutANode(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	node := 1 + rng.IntN(lab.Nodes)
	if err := s.Kafka.Do("kill", node); err != nil {
		return err
	}
	backoff.Wait(ctx, between(rng, 8*time.Second, 14*time.Second))
	return s.Kafka.Do("restart", node)
}

// deleteLetters deletes a dead letter topic, and creates it again a while later. What stood there is kept for the auditor;
// first it takes nothing any more, so that nothing is written in between.
func deleteLetters(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
	name := s.Prefix + pick(rng, "orders", "offsets", "source") + ".dlq"
	details, err := s.Admin.ListTopics(ctx, name)
	if err != nil || details[name].Err != nil {
		return errors.Join(err, details[name].Err)
	}
	partitions, nothing := int32(len(details[name].Partitions)), tooLarge
	ctx = context.WithoutCancel(ctx)
	configs, err := configured(ctx, s, name)
	if err != nil {
		return err
	}
	if err := alter(ctx, s, []string{name}, kadm.AlterConfig{Name: "max.message.bytes", Value: &nothing}); err != nil {
		return err
	}
	backoff.Wait(ctx, 2*time.Second) // what a leader has taken by now is confirmed, or never
	before, err := audit.Letters(ctx, s.Kafka.Brokers(), name)
	if err != nil {
		return err
	}
	s.Earlier = append(s.Earlier, before...)
	if _, err := s.Admin.DeleteTopics(ctx, name); err != nil {
		return err
	}
	backoff.Wait(ctx, between(rng, time.Second, 8*time.Second))
	if _, err := s.Admin.CreateTopic(ctx, partitions, -1, configs, name); !errors.Is(err, kerr.TopicAlreadyExists) {
		return err
	}
	return nil // a member that has started meanwhile was faster
}

// configured is what was set for a topic itself.
func configured(ctx context.Context, s *lab.Site, topic string) (map[string]*string, error) {
	described, err := s.Admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	found := map[string]*string{}
	for _, d := range described {
		if d.Err != nil {
			return nil, d.Err
		}
		for _, c := range d.Configs {
			if c.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
				found[c.Key] = c.Value
			}
		}
	}
	return found, nil
}

func letterTopics(s *lab.Site) []string {
	return []string{s.Prefix + "orders.dlq", s.Prefix + "offsets.dlq", s.Prefix + "source.dlq"}
}

// letterTopic gives the dead letter topics a configuration under which they take nothing, meanwhile.
func letterTopic(name, value string, meanwhile func(context.Context, *lab.Site, *rand.Rand) error) func(context.Context, *lab.Site, *rand.Rand) error {
	return func(ctx context.Context, s *lab.Site, rng *rand.Rand) error {
		topics := letterTopics(s)
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
		held := meanwhile(ctx, s, rng)
		mend := kadm.AlterConfig{Name: name, Value: before[name]}
		if mend.Value == nil {
			mend.Op = kadm.DeleteConfig
		}
		return errors.Join(held, alter(context.WithoutCancel(ctx), s, topics, mend))
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

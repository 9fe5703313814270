package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Brokers hear of a topic one after the other, and each question may go to another one: what one of them says of a topic
// that is new is not what the next one will say.

// heardTimeout is how long one broker may take to say what it has heard. One that is silent will not be asked next either.
const heardTimeout = 3 * time.Second

// heard is what each broker that answers says of a topic.
func (a *Admin) heard(ctx context.Context, name string) ([]kmsg.MetadataResponseTopic, error) {
	brokers, err := a.adm.ListBrokers(ctx)
	if err != nil {
		return nil, fmt.Errorf("describe topic %q: %w", name, err)
	}
	said := make([]kmsg.MetadataResponseTopic, 0, len(brokers))
	for _, b := range brokers {
		if t, err := a.ask(ctx, b.NodeID, name); err == nil {
			said = append(said, t)
		}
	}
	return said, ctx.Err()
}

func (a *Admin) ask(ctx context.Context, node int32, name string) (kmsg.MetadataResponseTopic, error) {
	ctx, cancel := context.WithTimeout(ctx, heardTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	resp, err := a.client.Broker(int(node)).Request(ctx, req)
	if err != nil {
		return kmsg.MetadataResponseTopic{}, err
	}
	topics := resp.(*kmsg.MetadataResponse).Topics
	if len(topics) != 1 {
		return kmsg.MetadataResponseTopic{}, errors.New("an answer about something else")
	}
	return topics[0], nil
}

// knownTo says that a broker has heard of the topic; with an id, of this one and not of one that had its name before.
func knownTo(t kmsg.MetadataResponseTopic, id kadm.TopicID) bool {
	return t.ErrorCode != kerr.UnknownTopicOrPartition.Code && (id == kadm.TopicID{} || id == kadm.TopicID(t.TopicID))
}

// anybodyKnows says whether a broker has heard of a topic that another does not know.
func (a *Admin) anybodyKnows(ctx context.Context, name string) (bool, error) {
	said, err := a.heard(ctx, name)
	for _, t := range said {
		if knownTo(t, kadm.TopicID{}) {
			return true, nil
		}
	}
	return false, err
}

// everybodyKnows says whether all have heard of it.
func (a *Admin) everybodyKnows(ctx context.Context, name string, id kadm.TopicID) (bool, error) {
	said, err := a.heard(ctx, name)
	for _, t := range said {
		if !knownTo(t, id) {
			return false, nil
		}
	}
	return err == nil, err
}

package kafka

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Transport delivers the records of one group member to the subscriptions of its routes. A [Source] is one; package
// kafka/stock has another, under watermill-kafka's own Subscriber.
type Transport interface {
	// Subscriber is one route's view: its messages carry records (see record.Records).
	Subscriber(sub Subscription) message.Subscriber
	// Stop begins nothing more, lets what is in flight finish within the graces, commits and leaves the group.
	Stop(ctx context.Context) error
	// Done closes when the member has given up or was stopped, and Err says why; nil if it was stopped.
	Done() <-chan struct{}
	Err() error
	// Live says whether the process should go on, Ready whether records flow.
	Live() error
	Ready() error
	// Stats gives the state of every claim.
	Stats() []PartitionStats
}

var _ Transport = (*Source)(nil)

package load

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// transactionTimeout is after what the brokers abort what a producer has left open.
const transactionTimeout = 10 * time.Second

// franz is franz-go, in this process.
type franz struct{ client *kgo.Client }

// dialFranz makes a client, of transactions if it has an id for them.
func dialFranz(brokers []string, codec codec, transactionalID string) (sender, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(brokers...), kgo.ProducerBatchCompression(codec.franz), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.ProducerBatchMaxBytes(1_000_000),
	}
	if transactionalID != "" {
		opts = append(opts, kgo.TransactionalID(transactionalID), kgo.TransactionTimeout(transactionTimeout))
	}
	client, err := kgo.NewClient(opts...)
	return &franz{client}, err
}

// send closes the client when its time is over. A delivery timeout of the client's would be measured from the records'
// timestamps, of which some are of 1970.
func (f *franz) send(ctx context.Context, how ending, records []*kgo.Record) error {
	defer context.AfterFunc(ctx, f.client.Close)()
	if how == plain {
		return f.client.ProduceSync(ctx, records...).FirstErr()
	}
	if err := f.client.BeginTransaction(); err != nil {
		return err
	}
	if err := f.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	return f.client.EndTransaction(ctx, kgo.TransactionEndTry(how == commit))
}

// close leaves a transaction open, if one is: the next client aborts it, or the brokers do.
func (f *franz) close() { f.client.Close() }

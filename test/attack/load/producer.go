package load

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// producer writes to one topic.
type producer struct {
	cfg           Config
	name          string
	codec         kgo.CompressionCodec
	transactional bool
	grammar       grammar
	client        *kgo.Client // nil while there is none
}

const (
	// patience is for one write. What is not written by then may be written later, or never.
	patience = 30 * time.Second
	// transactionTimeout is after what the brokers abort what a producer has left open.
	transactionTimeout = 10 * time.Second
)

func (p *producer) run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	defer p.end()
	for {
		select {
		case <-tick.C:
			p.write(context.WithoutCancel(ctx))
		case <-ctx.Done():
			return
		}
	}
}

// write writes what is due. Whatever goes wrong, the next one begins anew.
func (p *producer) write(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var records []*kgo.Record
	for len(records) < max(1, p.cfg.Rate*int(every)/int(time.Second)) {
		records = append(records, p.grammar.next()...)
	}
	if err := p.send(ctx, records); err != nil {
		p.end()
	}
}

func (p *producer) send(ctx context.Context, records []*kgo.Record) error {
	if err := p.begin(); err != nil {
		return err
	}
	if !p.transactional {
		return p.client.ProduceSync(ctx, records...).FirstErr()
	}
	if err := p.client.BeginTransaction(); err != nil {
		return err
	}
	if err := p.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	return p.client.EndTransaction(ctx, kgo.TransactionEndTry(p.grammar.rng.IntN(4) > 0))
}

// begin makes a client if there is none.
func (p *producer) begin() (err error) {
	if p.client != nil {
		return nil
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(p.cfg.Brokers...), kgo.ProducerBatchCompression(p.codec), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.RecordDeliveryTimeout(patience), kgo.ProducerBatchMaxBytes(1_000_000),
	}
	if p.transactional {
		opts = append(opts, kgo.TransactionalID(p.name), kgo.TransactionTimeout(transactionTimeout))
	}
	p.client, err = kgo.NewClient(opts...)
	return err
}

// end throws the client away. A transaction that it leaves open is aborted by the next client, or by the brokers.
func (p *producer) end() {
	if p.client != nil {
		p.client.Close()
		p.client = nil
	}
}

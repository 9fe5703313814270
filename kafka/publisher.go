package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/record"
)

const (
	defaultPublishTimeout = 30 * time.Second
	// maxRequestTimeout is how long a broker may take for one produce request, the client's own default.
	maxRequestTimeout = 10 * time.Second
	// minRequestTimeout is a third of the least Timeout in which a retry fits.
	minRequestTimeout = time.Second / 3
	// publishMetadataAge bounds how often the client asks who leads a partition after an error. Its own default, five
	// seconds, is half of a dead letter's time.
	publishMetadataAge = 100 * time.Millisecond
	// unknownTopicRetries at publishMetadataAge are two seconds: the time in which a topic just created becomes known.
	unknownTopicRetries = 20
	// batchMaxBytes bounds what is sent together, uncompressed. It is the client's default, below Kafka's for a topic.
	batchMaxBytes = 1_000_012
	// aloneMaxBytes bounds a record that is sent alone, uncompressed; the broker decides what is too large for the topic.
	aloneMaxBytes = 64 << 20
)

// errPublisherClosed is a programmer's error, so nobody is to match it.
var errPublisherClosed = errors.New("publisher is closed")

// PublisherConfig says how a Publisher publishes. What makes it safe is not a matter of configuration: every write is
// idempotent and confirmed by all in-sync replicas.
type PublisherConfig struct {
	// Client says how to reach the cluster. Required.
	Client ClientConfig
	// Key gives the key of a message's record; nil is a record without one.
	//
	// Defaults to what SetKey left in the message, nil without.
	Key func(topic string, msg *message.Message) ([]byte, error)
	// Partitioner chooses the partition of a record that wants none. Whoever comes from watermill-kafka and wants keys
	// to stay where they are uses kgo.StickyKeyPartitioner(kgo.SaramaCompatHasher(…)) with FNV-1a.
	//
	// Defaults to the client's own: by key as the Java clients do (murmur2), spread without a key.
	Partitioner kgo.Partitioner
	// Compression is which codecs to use, the preferred first. Consumers must be able to read them.
	//
	// Defaults to snappy.
	Compression []kgo.CompressionCodec
	// CreateTopics lets the brokers create a topic that does not exist, if auto.create.topics.enable allows it.
	//
	// Defaults to false: a misspelt topic is an error.
	CreateTopics bool
	// Timeout bounds how long Publish waits for the brokers. A message's own context may end it earlier. At least 1 s is
	// needed for a retry to fit.
	//
	// Defaults to 30 s.
	Timeout time.Duration
}

func (c PublisherConfig) withDefaults() PublisherConfig {
	if c.Key == nil {
		c.Key = keyOfMetadata
	}
	if c.Partitioner == nil {
		c.Partitioner = kgo.UniformBytesPartitioner(64<<10, true, true, nil)
	}
	if c.Timeout == 0 {
		c.Timeout = defaultPublishTimeout
	}
	return c
}

func (c PublisherConfig) validate() error {
	if err := c.Client.Validate(); err != nil {
		return err
	}
	if c.Timeout < 0 {
		return fmt.Errorf("PublisherConfig.Timeout %s is negative", c.Timeout)
	}
	return nil
}

// Publisher writes to Kafka, losing nothing: it returns when all in-sync replicas have the records, writes keys, values
// and headers byte for byte, and keeps the order of records of a partition. It is safe for concurrent use, and the more
// concurrent the calls the larger its batches. Whoever made it closes it.
//
// Publish takes Watermill's messages, whose metadata is a map of strings; PublishRecords takes all that a Kafka record
// can be.
type Publisher struct {
	cfg PublisherConfig

	mu      sync.Mutex
	closed  bool
	current *producer
	single  *producer // see lone
	running sync.WaitGroup
	retired sync.WaitGroup
	turn    chan struct{}        // whose record is with single
	forgot  map[string]time.Time // topics that were created again, and when a client forgot them
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher makes a Publisher with connections of its own. It does not reach for the cluster yet.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	made, err := cfg.producer(batchMaxBytes)
	if err != nil {
		return nil, err
	}
	return &Publisher{cfg: cfg, current: made, turn: make(chan struct{}, 1)}, nil
}

// options are what both clients of a Publisher have in common.
func (c PublisherConfig) options(more ...kgo.Opt) []kgo.Opt {
	request := min(maxRequestTimeout, max(c.Timeout/3, minRequestTimeout))
	opts := append(
		c.Client.Options(),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(wishes{c.Partitioner}),
		kgo.ProducerLinger(0), // a caller waits for each record; batches form behind the one in flight
		kgo.MetadataMinAge(publishMetadataAge),
		kgo.UnknownTopicRetries(unknownTopicRetries),
		// A request and its answer get a third of the time each: a connection that went silent is given up early enough
		// for the client's own retry, which the broker recognises, to come through in time.
		kgo.ProduceRequestTimeout(request),
		kgo.RequestTimeoutOverhead(request),
		// Without it a record that was sent waits for its answer for ever, whatever its context says.
		kgo.AllowIdempotentProduceCancellation(),
	)
	if len(c.Compression) > 0 {
		opts = append(opts, kgo.ProducerBatchCompression(c.Compression...))
	}
	if c.CreateTopics {
		opts = append(opts, kgo.AllowAutoTopicCreation())
	}
	return append(opts, more...)
}

// Publish writes one record for each message and returns when all are confirmed. UUID and metadata become headers as
// watermill-kafka's Marshaler writes them (metadata in the order of its keys), Payload the value; a nil Payload becomes a
// nil value, a tombstone.
//
// Each message's own context may end its wait. The error is a *PublishError that names the messages which are not
// confirmed; the others are written. Nothing at all is written when a message cannot be made a record: its metadata uses
// the reserved key "_watermill_message_uuid", or it carries several records of a Source.
//
// A message whose context is that of a handler with a transaction is refused: package outbox publishes in it.
func (p *Publisher) Publish(topic string, msgs ...*message.Message) error {
	parcels := make([]*parcel, len(msgs))
	for i, msg := range msgs {
		if record.InTransaction(msg.Context()) {
			return errTransaction
		}
		rec, err := p.recordOf(topic, msg)
		if err != nil {
			return fmt.Errorf("message %q for topic %q: %w", msg.UUID, topic, err)
		}
		parcels[i] = &parcel{ctx: msg.Context(), rec: rec}
	}
	return p.deliver(parcels)
}

// PublishRecords writes records and returns when all are confirmed, their timeout is over or ctx ends. Records of one
// partition are written in order. The error is a *PublishError that names those which are not confirmed; the others are
// written, and whether one that is not confirmed was written after all may be unknown.
//
// A record that does not fit into a batch, or makes the broker refuse one, is sent again alone, after those that were
// sent with it: one too large harms no other. Where a partition's first record runs out of time, the client gives those up
// that it has sent behind it; these are sent again too, and may be there twice: who reads them tells by their ids.
//
// The context of a handler with a transaction is refused: package outbox publishes in it.
func (p *Publisher) PublishRecords(ctx context.Context, recs ...ProducerRecord) error {
	if record.InTransaction(ctx) {
		return errTransaction
	}
	parcels := make([]*parcel, len(recs))
	for i, rec := range recs {
		if rec.Topic == "" {
			return fmt.Errorf("record %d of %d has no topic", i, len(recs))
		}
		parcels[i] = &parcel{ctx: ctx, rec: rec}
	}
	return p.deliver(parcels)
}

// Close waits until the running calls have ended, which their Timeout bounds, and ends the connections. Calls that come
// later are refused. Closing again does nothing.
func (p *Publisher) Close() error {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.mu.Unlock()
	p.running.Wait()
	if !first {
		return nil
	}
	p.current.client.Close()
	if p.single != nil {
		p.single.client.Close()
	}
	p.retired.Wait()
	return nil
}

// enter counts a call in, so that Close waits for it.
func (p *Publisher) enter() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errPublisherClosed
	}
	p.running.Add(1)
	return nil
}

// ProducerRecord is all that a record can be when it is written.
type ProducerRecord struct {
	// Topic to write to. Required.
	Topic string
	// Partition is the wanted one. A topic that does not have it, and nil, leave the choice to the Publisher's
	// Partitioner.
	Partition *int32
	// Key is nil for a record without one; an empty key is a key.
	Key []byte
	// Value is nil for a tombstone.
	Value []byte
	// Headers are written in order, with duplicates and nil values.
	Headers []record.Header
	// Timestamp is the record's own, of any time, cut to milliseconds. Defaults to now.
	Timestamp time.Time
	// Alone asks for a batch of its own, for a record that the broker may refuse as too large: it refuses whole batches.
	// Such records are slow, one after the other.
	Alone bool
}

const (
	// batchOverhead is what a batch has besides its records, recordOverhead what a record has besides its parts.
	batchOverhead  = 61
	recordOverhead = 3
)

// Size is how many bytes a batch has that holds only this record, uncompressed, to within a few for its varying
// lengths. It is what max.message.bytes is compared with, after compression.
func (r ProducerRecord) Size() int {
	n := recordOverhead + bytesSize(r.Key) + bytesSize(r.Value) + varintSize(len(r.Headers))
	for _, h := range r.Headers {
		n += varintSize(len(h.Key)) + len(h.Key) + bytesSize(h.Value)
	}
	return batchOverhead + varintSize(n) + n
}

// bytesSize is a length and its bytes; nil is the length -1.
func bytesSize(b []byte) int { return varintSize(len(b)) + len(b) }

// varintSize is the size of n as a zigzag varint.
func varintSize(n int) int {
	size := 1
	for z := uint64(n) << 1; z >= 0x80; z >>= 7 {
		size++
	}
	return size
}

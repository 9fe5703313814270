package dlq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/internal/redact"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

const (
	defaultTimeout = 10 * time.Second
	// firstWait and lastWait bound the waits between tries, which double.
	firstWait = 100 * time.Millisecond
	lastWait  = time.Second
	// maxTopic is the longest topic name that Kafka takes.
	maxTopic = 249
)

// WriterConfig says where dead letters go and how long one may take.
type WriterConfig struct {
	// Client says how to reach the cluster. Required.
	Client kafka.ClientConfig
	// Topic names the dead letter topic of a source topic.
	//
	// Defaults to DefaultTopic.
	Topic func(source string) string
	// Group is the consumer group of letters that name none.
	Group string
	// Timeout bounds one Write. At least 1 s.
	//
	// Defaults to 10 s.
	Timeout time.Duration
	// Hooks.OnDeadLetter is told of each confirmed letter, OnReport of envelopes that a replayed record should have had.
	Hooks *record.Hooks
	// Logger gets what the client warns of, unless Client names another.
	//
	// Defaults to slog.Default().
	Logger *slog.Logger
}

func (c WriterConfig) withDefaults() WriterConfig {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Hooks == nil {
		c.Hooks = &record.Hooks{}
	}
	if c.Client.Logger == nil {
		c.Client.Logger = c.Logger
	}
	return c
}

func (c WriterConfig) validate() error {
	if c.Timeout < time.Second {
		return fmt.Errorf("WriterConfig.Timeout %s is below 1s, which leaves no room for a retry", c.Timeout)
	}
	return nil
}

// Writer writes dead letters. It has connections of its own, so that no other traffic of the process delays them, is
// safe for concurrent use, and the more concurrent the calls the larger its batches. Whoever made it closes it.
type Writer struct {
	cfg WriterConfig
	pub *kafka.Publisher
}

// NewWriter makes a Writer. It does not reach for the cluster; Check does.
func NewWriter(cfg WriterConfig) (*Writer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	pub, err := newPublisher(cfg.Client, cfg.Timeout)
	if err != nil {
		return nil, fmt.Errorf("dead letter writer: %w", err)
	}
	return &Writer{cfg: cfg, pub: pub}, nil
}

// newPublisher makes a publisher of letters.
func newPublisher(client kafka.ClientConfig, timeout time.Duration) (*kafka.Publisher, error) {
	return kafka.NewPublisher(kafka.PublisherConfig{
		Client:  client,
		Timeout: timeout,
		// The broker compares compressed sizes: what the source took compressed must fit here too.
		Compression: []kgo.CompressionCodec{kgo.ZstdCompression(), kgo.SnappyCompression(), kgo.NoCompression()},
	})
}

// Close waits for the running Writes, which their Timeout bounds, and ends the connections.
func (w *Writer) Close() error { return w.pub.Close() }

// Write writes a letter and returns nil when all in-sync replicas have it: only then may its record be settled. It tries
// again until then, until its Timeout is over or ctx ends. A letter of which it is unknown whether it was written is
// written again: at most there are two with the same coordinates, never none.
//
// A letter that cannot be written is no fault of its record. The error is fault.Unavailable(…, fault.DeadLetterTopic),
// for which the record is held. One too large for the topic is tried with a shorter message and without its stack
// before; then the error matches ErrTooLarge as well. If ctx ended, the error wraps its cause.
func (w *Writer) Write(ctx context.Context, l Letter) error {
	env, original := w.envelope(l)
	topic, err := w.topicOf(l, env)
	if err == nil {
		err = w.confirm(ctx, letter{topic: topic, source: l.Record, env: env, original: original})
	}
	switch {
	case err == nil:
		w.tell(l, env)
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("dead letter of %s: %w", env.Latest, errors.Join(context.Cause(ctx), err))
	default:
		return fault.Unavailable(fmt.Errorf("dead letter of %s to %q: %w", env.Latest, topic, err), fault.DeadLetterTopic)
	}
}

// confirm writes until the letter is confirmed, is hopeless, or the time is over.
func (w *Writer) confirm(ctx context.Context, l letter) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		err := w.fit(ctx, l)
		if err == nil || !worthwhile(err) || !backoff.Wait(ctx, wait) {
			return err
		}
	}
}

// fit writes a letter once, smaller each time that the broker finds it too large.
func (w *Writer) fit(ctx context.Context, l letter) error {
	var err error
	for i, env := range []Envelope{l.env, shorter(l.env), shortest(l.env)} {
		rec := l.record(env)
		rec.Alone = i > 0 // in a batch it would take its neighbours with it once more
		if err = w.pub.PublishRecords(ctx, rec); !errors.Is(err, kerr.MessageTooLarge) {
			return err
		}
		err = &TooLargeError{Source: l.env.Latest, Topic: l.topic, Original: l.originalSize(), Letter: rec.Size(), Err: err}
	}
	return err
}

// shorter is an envelope without the stack and with the head of the message only; shortest has no message either.
func shorter(env Envelope) Envelope {
	env.Stack, env.Message = "", trim(env.Message, shortMessage)
	return env
}

func shortest(env Envelope) Envelope {
	env.Stack, env.Message = "", ""
	return env
}

// worthwhile says whether writing again at once may help: where the outcome is unknown, or nothing was written for a
// cause that passes. A topic that is missing or not ours to write to needs an operator: the record is held meanwhile.
func worthwhile(err error) bool {
	var failed *kafka.PublishError
	if !errors.As(err, &failed) || errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kafka.ErrUnknownTopic) {
		return false
	}
	return failed.Failed[0].Ambiguous || errors.Is(err, kerr.CorruptMessage)
}

// letter is what is written: the record with an envelope that may have to be made smaller.
type letter struct {
	topic    string
	source   *record.Record
	env      Envelope
	original []record.Header
}

func (l letter) record(env Envelope) kafka.ProducerRecord {
	return kafka.ProducerRecord{
		Topic:     l.topic,
		Partition: &l.env.Origin.Partition,
		Key:       l.source.Key,
		Value:     l.source.Value,
		Headers:   env.Append(l.original),
	}
}

func (l letter) originalSize() int {
	return kafka.ProducerRecord{Key: l.source.Key, Value: l.source.Value, Headers: l.original}.Size()
}

// envelope makes the envelope of a letter and gives the headers that its record had before any of ours. Only a record
// of a replay topic can have ours: nobody but Headrace may write there. On any other, whatever looks like them is data.
func (w *Writer) envelope(l Letter) (Envelope, []record.Header) {
	r := l.Record
	here := Coordinates{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}
	env := Envelope{Origin: here, TopicID: r.TopicID, Timestamp: r.Timestamp, FirstFailed: l.FirstFailed}
	original := r.Headers
	if r.Replay {
		env, original = w.resume(env, r)
	}
	env.Latest, env.MessageID, env.ID = here, r.Identity.Key, identityText(r.Identity)
	env.Group, env.Route = trim(w.group(l), maxName), trim(l.Route, maxName)
	env.Reason, env.Class = l.Reason, trim(l.Class, maxName)
	env.ErrorType, env.Message, env.Stack = errorType(l.Err), MessageOf(l.Record, l.Err, l.RedactError), stackOf(l.Err)
	env.Fingerprint = fingerprint(env.Reason, env.ErrorType, env.Message)
	env.Attempts, env.LastFailed = l.Attempts, l.LastFailed
	env.History = redact.Text(l.History)
	return env, original
}

// identityText is an identity's text where its key does not say it already.
func identityText(id record.Identity) string {
	if id.ID == id.Key.String() || len(id.ID) > maxID {
		return ""
	}
	return id.ID
}

// resume takes over what an earlier letter of a replayed record said of its beginning. All else is replaced.
func (w *Writer) resume(env Envelope, r *record.Record) (Envelope, []record.Header) {
	earlier, original, ok := earlierLetter(r)
	if !ok || earlier.Origin.Topic == "" || len(earlier.Origin.Topic) > maxTopic {
		w.report(r)
		return env, r.Headers
	}
	env.Origin, env.TopicID, env.Timestamp = earlier.Origin, earlier.TopicID, earlier.Timestamp
	env.Replays = earlier.Replays
	if !earlier.FirstFailed.IsZero() {
		env.FirstFailed = earlier.FirstFailed
	}
	return env, original
}

// earlierLetter is the envelope of the letter that a replayed record was, and its original headers. The decode layer
// takes the one off the other; a record that did not come so far has both in its headers.
func earlierLetter(r *record.Record) (Envelope, []record.Header, bool) {
	if env, ok := r.Letter.(*Envelope); ok && env != nil {
		return *env, r.Headers, true
	}
	return Decode(r.Headers)
}

func (w *Writer) group(l Letter) string {
	if l.Group == "" {
		return w.cfg.Group
	}
	return l.Group
}

// topicOf is where a letter goes: a replayed record's to where its first one went.
func (w *Writer) topicOf(l Letter, env Envelope) (string, error) {
	topic := l.Topic
	if topic == "" {
		topic = w.topic(env.Origin.Topic)
	}
	if topic == l.Record.Topic {
		return topic, &OwnInputError{Source: env.Latest}
	}
	return topic, nil
}

// topic stays apart from the defaults: Check asks whether somebody named the topic.
func (w *Writer) topic(source string) string {
	if w.cfg.Topic == nil {
		return DefaultTopic(source)
	}
	return w.cfg.Topic(source)
}

func (w *Writer) tell(l Letter, env Envelope) {
	if w.cfg.Hooks.OnDeadLetter != nil {
		w.cfg.Hooks.OnDeadLetter(record.DeadLetterInfo{
			Route: l.Route, Topic: l.Record.Topic, Reason: string(l.Reason), Partition: l.Record.Partition, Offset: l.Record.Offset,
			Message: env.Message, Fingerprint: env.Fingerprint,
		})
	}
}

func (w *Writer) report(r *record.Record) {
	if w.cfg.Hooks.OnReport == nil {
		return
	}
	w.cfg.Hooks.OnReport(record.Report{
		Kind: record.ReportReplayWithoutEnvelope, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
		Hint: "only Headrace may write to a replay topic: look who has the permission",
	})
}

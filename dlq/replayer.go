package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/kafka"
)

const (
	// batchLetters and batchBytes bound what is in flight, and in memory.
	batchLetters = 500
	batchBytes   = 4 << 20
	// lastWords is how long the batch in flight may take to be confirmed when the replay is to end: what is confirmed
	// need not be sent again.
	lastWords = 5 * time.Second
)

// replayer sends letters in batches, one after the other: that bounds what is in flight and keeps their order.
type replayer struct {
	cfg   ReplayConfig
	admin *kafka.Admin
	pub   *kafka.Publisher
	unfit map[string]error     // replay topics that were looked at, and what is wrong with them
	found map[[2]string]bool   // groups with a route, and whether there is one
	ids   map[string]uuid.UUID // of source topics, for letters that do not tell
	batch []parcel
	bytes int
	sum   Summary
}

// parcel is a letter and what becomes of it. One that is skipped or has failed already waits for its turn to be told.
type parcel struct {
	entry  *Entry
	rec    kafka.ProducerRecord
	result Result
}

func newReplayer(cfg ReplayConfig) (*replayer, error) {
	admin, err := kafka.NewAdmin(cfg.Read.Client)
	if err != nil {
		return nil, err
	}
	pub, err := newPublisher(cfg.Read.Client, cfg.Timeout)
	if err != nil {
		admin.Close()
		return nil, err
	}
	return &replayer{
		cfg: cfg, admin: admin, pub: pub, unfit: map[string]error{}, found: map[[2]string]bool{}, ids: map[string]uuid.UUID{},
		sum: Summary{ByTopic: map[string]int64{}, Skipped: map[Skip]int64{}},
	}, nil
}

func (r *replayer) close() {
	_ = r.pub.Close() // it has nothing in flight, and never says more than that it is closed
	r.admin.Close()
}

// take puts a letter into the batch. Its error is one of the whole replay.
func (r *replayer) take(ctx context.Context, e *Entry) error {
	p := parcel{entry: e}
	p.result.Skipped = r.skip(e)
	if p.result.Skipped == "" {
		if err := r.address(ctx, &p); err != nil {
			return cmp.Or(r.flush(ctx), err) // what matched before it is not to be lost
		}
	}
	r.batch = append(r.batch, p)
	r.bytes += kafka.ProducerRecord{Key: e.Key, Value: e.Value, Headers: e.Headers}.Size()
	if len(r.batch) >= batchLetters || r.bytes >= batchBytes {
		return r.flush(ctx)
	}
	return nil
}

func (r *replayer) skip(e *Entry) Skip {
	switch {
	case e.Later != nil:
		return SkipSuperseded
	case e.Format == FormatUnknown && !slices.Contains(r.cfg.Read.Filter.Formats, FormatUnknown):
		return SkipNoLetter
	}
	if r.cfg.Skip != nil {
		if why := r.cfg.Skip(e); why != "" {
			return why
		}
	}
	switch env := &e.Envelope; {
	case env.Replays >= r.cfg.MaxReplays:
		return SkipTooOften
	case env.Reason == IDConflict && !r.cfg.NewID:
		return SkipIDConflict
	}
	return ""
}

// address makes the record that is sent, or the result of a letter that cannot be.
func (r *replayer) address(ctx context.Context, p *parcel) error {
	env, err := r.envelope(ctx, p.entry)
	if err != nil {
		return err
	}
	topic := ReplayTopic(env.Origin.Topic, env.Group)
	if p.result.Err = r.undeliverable(p.entry, env); p.result.Err == nil {
		p.result.Err, err = r.known(ctx, env)
	}
	if err == nil && p.result.Err == nil {
		p.result.Err, err = r.check(ctx, p.entry, env, topic)
	}
	if err == nil && p.result.Err == nil {
		p.result.Topic, p.rec = topic, replayRecord(p.entry, env, topic)
	}
	return err
}

func replayRecord(e *Entry, env Envelope, topic string) kafka.ProducerRecord {
	rec := kafka.ProducerRecord{Topic: topic, Key: e.Key, Value: e.Value, Headers: env.Append(e.Headers)}
	if e.Envelope.Origin.Known() {
		rec.Partition = &env.Origin.Partition
	}
	return rec
}

// undeliverable says what a letter lacks.
func (r *replayer) undeliverable(e *Entry, env Envelope) error {
	lacks := func(what Name) error { return &NamelessError{Letter: e.Place(), Format: e.Format, Lacks: what} }
	switch topic := ReplayTopic(env.Origin.Topic, env.Group); {
	case env.Origin.Topic == "":
		return lacks(SourceTopic)
	case env.Group == "":
		return lacks(ConsumerGroup)
	case env.Route == "":
		return lacks(RouteName)
	case !legal(topic):
		return fmt.Errorf("%q is no legal name for a replay topic", trim(topic, maxName))
	case topic == e.Topic:
		return errors.New("it stands in the topic that it would be replayed to")
	}
	return nil
}

// legal says whether Kafka takes it as the name of a topic.
func legal(topic string) bool {
	for _, c := range []byte(topic) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return topic != "" && len(topic) <= maxTopic
}

// flush sends the batch and tells of it.
func (r *replayer) flush(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	err := r.send(ctx)
	for i := range r.batch {
		r.tell(&r.batch[i])
	}
	clear(r.batch)
	r.batch, r.bytes = r.batch[:0], 0
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// send publishes what is to be published. The error is one that the next batch would meet too.
func (r *replayer) send(ctx context.Context) error {
	var recs []kafka.ProducerRecord
	var sent []*parcel
	for i := range r.batch {
		if p := &r.batch[i]; p.result.Topic != "" {
			p.result.Sent = true
			recs, sent = append(recs, p.rec), append(sent, p)
		}
	}
	if r.cfg.DryRun || len(recs) == 0 {
		return nil
	}
	longer, cancel := outlive(ctx, lastWords)
	defer cancel()
	err := r.pub.PublishRecords(longer, recs...)
	var failed *kafka.PublishError
	if !errors.As(err, &failed) {
		return err
	}
	err = nil
	for _, f := range failed.Failed {
		sent[f.Index].result = Result{Topic: f.Topic, Err: f.Err, Unconfirmed: f.Ambiguous}
		switch {
		case ofTopic(f.Err):
			r.unfit[f.Topic] = f.Err // its next letters need not be sent
		case !refused(ctx, f.Err):
			err = fmt.Errorf("replay to %q: %w", f.Topic, f.Err)
		}
	}
	return err
}

// refused says whether the broker will not have this one letter: the others may go on.
func refused(ctx context.Context, err error) bool {
	return (&fault.Classifier{}).Classify(context.WithoutCancel(ctx), err).Class == fault.ClassPermanent
}

// outlive is a context that ends a while after ctx.
func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		backoff.Wait(longer, d)
		cancel(context.Cause(ctx))
	})
	return longer, func() { stop(); cancel(nil) }
}

func (r *replayer) tell(p *parcel) {
	s := &r.sum
	s.Matched++
	switch res := p.result; {
	case res.Skipped != "":
		s.Skipped[res.Skipped]++
	case res.Sent:
		s.Sent++
		s.ByTopic[res.Topic]++
	default:
		s.Failed++
		if res.Unconfirmed {
			s.Unconfirmed++
		}
	}
	if r.cfg.Each != nil {
		r.cfg.Each(p.entry, p.result)
	}
}

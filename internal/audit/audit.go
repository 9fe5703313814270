package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// Config says what is audited. Client, Pool, Topic and Group are required.
type Config struct {
	Client kafka.ClientConfig
	// Pool is of the consumer's database. Nothing is written to it.
	Pool         *pgxpool.Pool
	Topic, Group string
	// Routes are those to audit. Defaults to all of the group that have read the topic.
	Routes []string
	// Letters is the dead letter topic. Defaults to the topic's name and ".dlq".
	Letters string
	// Since leaves out what was written before, as the broker's index finds it. Defaults to all that is there.
	Since    time.Time
	Identity Identity
	// Progress, if not nil, is told now and then how many records were looked at.
	Progress func(records int64)

	kept int // maxKept, but for tests
}

// chunk is how many records one statement asks for.
const chunk = 2000

// ErrNoRoute says that the database knows no route of the group that has read the topic. Match with errors.Is.
var ErrNoRoute = errors.New("no such route")

// auditor is one audit.
type auditor struct {
	cfg     Config
	topicID uuid.UUID
	routes  map[string]*route
	order   []*route
	// committed is the group's offset of each partition of the topic.
	committed map[int32]int64
	// replayID is the replay topic's, replayed the group's offsets there.
	replayID uuid.UUID
	replayed map[int32]int64
	// gone is before when letters may have been deleted, forgets before when the inbox may not remember records.
	gone, forgets time.Time
}

// Run audits. An error says that it could not be done: what is wrong with the records is in the ledgers. It needs to read
// the topics and to describe the group, and select on the schema headrace.
func Run(ctx context.Context, cfg Config) ([]*Ledger, error) {
	if cfg.Letters == "" {
		cfg.Letters = cfg.Topic + ".dlq"
	}
	if cfg.kept == 0 {
		cfg.kept = maxKept
	}
	a := &auditor{cfg: cfg}
	source, err := dlq.OpenLog(ctx, cfg.Client, cfg.Topic, cfg.Since) // first of all: the end
	if err != nil {
		return nil, err
	}
	defer source.Close()
	a.topicID = source.ID()
	if err := a.look(ctx); err != nil {
		return nil, err
	}
	letterEnds, err := a.readSides(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.scan(ctx, source); err != nil {
		return nil, err
	}
	if err := a.again(ctx, letterEnds); err != nil {
		return nil, err
	}
	ledgers := make([]*Ledger, len(a.order))
	for i, rt := range a.order {
		ledgers[i] = &rt.ledger
	}
	return ledgers, nil
}

// look asks for the group's offsets and routes, and for what may be forgotten.
func (a *auditor) look(ctx context.Context) (err error) {
	if a.committed, err = a.offsets(ctx, a.cfg.Topic); err != nil {
		return err
	}
	if a.replayed, err = a.offsets(ctx, a.replayTopic()); err != nil {
		return err
	}
	admin, err := kafka.NewAdmin(a.cfg.Client)
	if err != nil {
		return err
	}
	defer admin.Close()
	topic, err := admin.Topic(ctx, a.cfg.Topic)
	if err != nil {
		return err
	}
	if kept := topic.Lifetime(); kept > 0 { // the inbox remembers as long at least: a consumer does not start otherwise
		a.forgets = time.Now().Add(-kept)
	}
	return a.findRoutes(ctx)
}

func (a *auditor) replayTopic() string { return a.cfg.Topic + "." + a.cfg.Group + ".replay" }

func (a *auditor) offsets(ctx context.Context, topic string) (map[int32]int64, error) {
	client, err := kgo.NewClient(a.cfg.Client.Options()...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	found, err := kadm.NewClient(client).FetchOffsetsForTopics(ctx, a.cfg.Group, topic)
	if errors.Is(err, kerr.GroupIDNotFound) || errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("committed offsets of group %s: %w", a.cfg.Group, err)
	}
	at := map[int32]int64{}
	found.Each(func(o kadm.OffsetResponse) {
		if o.Topic == topic && o.Err == nil {
			at[o.Partition] = o.At
		}
	})
	return at, nil
}

// readSides reads the letters and keeps the replays of each route; the ends are those of the letters.
func (a *auditor) readSides(ctx context.Context) (ends map[int32]int64, err error) {
	log, err := dlq.OpenLog(ctx, a.cfg.Client, a.cfg.Letters, time.Time{})
	switch {
	case errors.Is(err, kafka.ErrUnknownTopic):
	case err != nil:
		return nil, err
	default:
		defer log.Close()
		if a.gone, err = a.readLetters(ctx, log); err != nil {
			return nil, err
		}
		ends = log.Ends()
	}
	return ends, a.readReplays(ctx)
}

// scan judges every record of the topic, for each route.
func (a *auditor) scan(ctx context.Context, log *dlq.Log) error {
	var rs []*item
	var seen int64
	flush := func() error {
		for _, rt := range a.order {
			if err := a.judge(ctx, rt, rs, rt.first); err != nil {
				return err
			}
			if err := a.relieve(ctx, rt); err != nil {
				return err
			}
		}
		seen += int64(len(rs))
		if a.cfg.Progress != nil {
			a.cfg.Progress(seen)
		}
		rs = rs[:0]
		return nil
	}
	err := log.Scan(ctx, func(r *record.Record) error {
		if !a.cfg.Since.IsZero() && r.Timestamp.Before(a.cfg.Since) {
			return nil
		}
		rs = append(rs, a.item(r))
		if len(rs) < chunk {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// item is what is kept of a record.
type item struct {
	spot

	at          time.Time
	id, place   uuid.UUID
	coordinates int64
	value       int64
	lines       [2]int64
}

func (a *auditor) item(r *record.Record) *item {
	it := &item{spot: spot{r.Partition, r.Offset}, at: r.Timestamp, value: valueHash(r.Value), lines: linesOf(r.TopicID, r.Partition, r.Offset, r.Key)}
	it.coordinates, it.place = placeOf(r.TopicID, r.Partition, r.Offset)
	it.id = a.cfg.Identity.of(r, it.place)
	return it
}

// judge asks for the rows of records and gives each with its verdict.
func (a *auditor) judge(ctx context.Context, rt *route, rs []*item, each func(*item, *facts, verdict)) error {
	for len(rs) > 0 {
		n := min(chunk, len(rs))
		found, err := a.rows(ctx, rt, a.topicID, rs[:n])
		if err != nil {
			return err
		}
		for i, it := range rs[:n] {
			f := found[i]
			a.complete(rt, it, f)
			v := rt.verdict(f)
			each(it, f, v)
		}
		rs = rs[n:]
	}
	return nil
}

// complete adds what is not in the database.
func (a *auditor) complete(rt *route, it *item, f *facts) {
	f.coordinates, f.value = it.coordinates, it.value
	f.letters = int(rt.letters.at(it.spot).n)
	f.committed = it.offset < a.committed[it.partition]
	f.done = it.offset < rt.lows[it.partition]
	f.old = rt.swept && it.at.Before(a.forgets)
	if own := f.own(); own != nil {
		f.lettersGone = own.created.Before(a.gone)
	}
}

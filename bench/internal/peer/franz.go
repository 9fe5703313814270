package peer

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/bench/internal/child"
	"github.com/headrace/headrace/bench/internal/load"
)

// group is what an expert writes: the effects and the inbox rows of some records of one partition, in one transaction.
type group func(ctx context.Context, conn *pgx.Conn, items []item) error

// item is a record, decoded.
type item struct {
	id uuid.UUID
	load.Posting
}

// consume is franz-go as its own documentation consumes at full speed: one goroutine a partition, fed by one loop that
// polls all there is; each takes what waits for it, up to Options.Poll records, into one transaction, and marks them, and
// what is marked is committed once a second and when partitions move. Settings: its defaults, a connection a partition.
func consume(ctx context.Context, s *child.Session, work group) error {
	db, err := connect(ctx, s)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, fail := context.WithCancelCause(ctx)
	c := &franz{s: s, db: db, work: work, lines: map[int32]*line{}, ctx: ctx, fail: fail}
	cl, err := kgo.NewClient(
		kgo.SeedBrokers(brokers(s)...), kgo.ConsumerGroup(s.Group), kgo.ConsumeTopics(s.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitMarks(),
		kgo.AutoCommitInterval(time.Second), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(c.assigned), kgo.OnPartitionsRevoked(c.revoked), kgo.OnPartitionsLost(c.revoked),
	)
	if err != nil {
		return err
	}
	defer cl.CloseAllowingRebalance()
	c.cl = cl
	s.Ready()
	for {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			c.end()
			return errors.Join(c.cause(), cl.CommitMarkedOffsets(context.WithoutCancel(ctx)))
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) { c.hand(p) })
		cl.AllowRebalance()
	}
}

// franz is one consumer.
type franz struct {
	s    *child.Session
	db   *pgxpool.Pool
	work group
	cl   *kgo.Client
	ctx  context.Context
	fail context.CancelCauseFunc

	mu    sync.Mutex
	lines map[int32]*line // by partition; there is one topic
}

// line is a partition's worker.
type line struct {
	in   chan []*kgo.Record
	quit chan struct{}
	done chan struct{}
}

// ahead is how many fetches of a partition may wait for its worker: enough that no partition waits for another's.
const ahead = 16

func (c *franz) assigned(_ context.Context, _ *kgo.Client, claims map[string][]int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, partition := range claims[c.s.Topic] {
		l := &line{in: make(chan []*kgo.Record, ahead), quit: make(chan struct{}), done: make(chan struct{})}
		c.lines[partition] = l
		go func() {
			defer close(l.done)
			c.run(l)
		}()
	}
}

// revoked ends the workers and then commits what they marked: the next owner begins behind it.
func (c *franz) revoked(ctx context.Context, cl *kgo.Client, claims map[string][]int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, partition := range claims[c.s.Topic] {
		if l := c.lines[partition]; l != nil {
			close(l.quit)
			<-l.done
			delete(c.lines, partition)
		}
	}
	_ = cl.CommitMarkedOffsets(ctx) // what is not committed comes again and finds its inbox rows
}

func (c *franz) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for partition, l := range c.lines {
		close(l.quit)
		<-l.done
		delete(c.lines, partition)
	}
}

// cause is why it ended by itself, nil if it was told to.
func (c *franz) cause() error {
	if err := context.Cause(c.ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (c *franz) hand(p kgo.FetchTopicPartition) {
	if p.Err != nil {
		c.fail(p.Err)
		return
	}
	c.mu.Lock()
	l := c.lines[p.Partition]
	c.mu.Unlock()
	if l == nil || len(p.Records) == 0 {
		return
	}
	select {
	case l.in <- p.Records:
	case <-l.quit:
	case <-c.ctx.Done():
	}
}

// run is a worker: it works in groups of what waits, and never waits to fill one.
func (c *franz) run(l *line) {
	conn, err := c.db.Acquire(c.ctx)
	if err != nil {
		c.fail(err)
		return
	}
	defer conn.Release()
	var waiting []*kgo.Record
	for {
		if len(waiting) == 0 {
			select {
			case waiting = <-l.in:
			case <-l.quit:
				return
			case <-c.ctx.Done():
				return
			}
		}
		for more := true; more && len(waiting) < c.s.Options.Poll; {
			select {
			case rs := <-l.in:
				waiting = append(waiting, rs...)
			default:
				more = false
			}
		}
		n := min(len(waiting), c.s.Options.Poll)
		if err := c.commit(conn.Conn(), waiting[:n]); err != nil {
			c.fail(err)
			return
		}
		waiting = waiting[n:]
		select {
		case <-l.quit:
			return
		default:
		}
	}
}

func (c *franz) commit(conn *pgx.Conn, rs []*kgo.Record) error {
	c.s.First()
	items, err := decode(rs)
	if err != nil {
		return err
	}
	// The end of the process does not tear a transaction that has begun.
	if err := c.work(context.WithoutCancel(c.ctx), conn, items); err != nil {
		return err
	}
	c.cl.MarkCommitRecords(rs[len(rs)-1])
	for _, it := range items {
		took(c.s, it.Posting)
	}
	c.s.Done(len(rs))
	return nil
}

// decode leaves a second copy of an identity out: within one statement it would not conflict with the first one's row.
func decode(rs []*kgo.Record) ([]item, error) {
	items := make([]item, 0, len(rs))
	known := make(map[uuid.UUID]struct{}, len(rs))
	for _, r := range rs {
		var it item
		var err error
		if it.id, err = uuid.Parse(idOf(r)); err != nil {
			return nil, err
		}
		if _, twice := known[it.id]; twice {
			continue
		}
		known[it.id] = struct{}{}
		if err := json.Unmarshal(r.Value, &it.Posting); err != nil {
			return nil, err
		}
		items = append(items, it)
	}
	return items, nil
}

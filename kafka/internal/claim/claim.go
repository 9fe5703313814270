package claim

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/record"
)

// overhead is what a record costs in memory beside its bytes: the client's record, its entry, its seat.
const overhead = 400

// Config says which partition a claim is for. All of it is required but OnLow.
type Config struct {
	Topic     string
	TopicID   uuid.UUID // uuid.Nil if it is not known yet: see Identify
	Partition int32
	// OnLow is called when a claim that was full may be filled again. It is called with the claim's lock held, so it
	// must neither block nor call the claim.
	OnLow func()
}

// Mark is how far everything is settled: Offset is the next one to read, Epoch the leader's epoch of the record before.
type Mark struct {
	Offset int64
	Epoch  int32
}

// Claim is the ownership of one partition. It is safe for concurrent use. Whoever made it ends it with EndSoft,
// EndHard and Close.
type Claim struct {
	Config

	soft    chan struct{}
	drained chan struct{}
	closed  chan struct{}
	hard    context.Context
	kill    context.CancelCauseFunc

	mu       sync.Mutex
	lines    []*Line
	window   []*entry // every record from the watermark on, in order of delivery
	bytes    int64    // of the window
	open     int      // entries of the window that some line has not settled
	inFlight int      // seats that run or wait, of all lines
	softened bool
	why      error // it is softened
	shut     bool
	full     bool
	limit    Limit
	mark     Mark
	moved    bool  // mark is valid
	began    int64 // the first record that was given, -1 for none
	end      int64 // behind the last record that was added, -1 for none
	scratch  []byte
}

// Limit bounds the window. A claim is full from the limit on, and low again below lowAt eighths of it: a window that had to be
// half empty first would stand still behind the records that fail, until nearly the last of those before that half is dead.
type Limit struct {
	// Records are those that some line has not settled: a record that is not done for long, and holds the watermark, stops
	// nobody else for their number.
	Records int
	// Bytes are of the whole window, the settled ones above the watermark included: they are kept for a later line.
	Bytes int64
}

// entry is one fetched record, shared by the lines.
type entry struct {
	rec     *kgo.Record
	follows int64 // the offset of the one before
	added   time.Time
	bytes   int64
	left    int // lines that have not settled it
}

// New makes an open claim that has no lines yet.
func New(cfg Config, limit Limit) *Claim {
	c := &Claim{
		Config: cfg, limit: limit, began: -1, end: -1,
		soft: make(chan struct{}), drained: make(chan struct{}), closed: make(chan struct{}),
	}
	c.hard, c.kill = context.WithCancelCause(context.Background())
	return c
}

// Identify gives the topic's id. One that was not known yet becomes id first, which must be before records are added.
func (c *Claim) Identify(id uuid.UUID) uuid.UUID {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.TopicID == uuid.Nil {
		c.TopicID = id
	}
	return c.TopicID
}

// Add takes over records in the order in which they were fetched. On a claim that is ending they are dropped.
func (c *Claim) Add(recs []*kgo.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(recs) == 0 {
		return
	}
	if c.began < 0 {
		c.began = recs[0].Offset
	}
	if c.softened {
		return
	}
	now, entries := time.Now(), make([]entry, len(recs))
	first := len(c.window)
	for i, rec := range recs {
		entries[i] = entry{rec: rec, follows: c.before(rec.Offset), added: now, bytes: size(rec), left: len(c.lines)}
		c.end = rec.Offset + 1
		c.bytes += entries[i].bytes
		c.window = append(c.window, &entries[i])
	}
	c.open += len(entries)
	for _, l := range c.lines {
		l.enqueue(c.window[first:])
	}
	c.full = c.full || c.over(whole)
}

// before is the offset of the record that was added last. The first one has none; nor has one of a log that was cut off
// and grew again, whose offsets come once more.
func (c *Claim) before(offset int64) int64 {
	if c.end < 0 || c.end > offset {
		return offset - 1
	}
	return c.end - 1
}

func size(rec *kgo.Record) int64 {
	n := overhead + len(rec.Key) + len(rec.Value)
	for _, h := range rec.Headers {
		n += 48 + len(h.Key) + len(h.Value)
	}
	return int64(n)
}

const (
	whole = 8
	lowAt = 7
)

// over says whether the window is at so many eighths of its limit or above.
func (c *Claim) over(eighths int64) bool {
	return int64(c.open) >= part(int64(c.limit.Records), eighths) || c.bytes >= part(c.limit.Bytes, eighths)
}

// part is so many eighths of n, rounded up, for a limit of any size: 1 is low at 0, and the largest number is not too large.
func part(n, eighths int64) int64 { return n - n/whole*(whole-eighths) }

// SetLimit changes the limit, for example because the process got more claims to share its memory.
func (c *Claim) SetLimit(l Limit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = l
	c.full = c.over(whole)
}

// Full says whether nothing more should be fetched for now.
func (c *Claim) Full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.full
}

// NewLine adds a line. It gets every record from the watermark on, and holds the watermark from now on.
func (c *Claim) NewLine(cfg LineConfig) *Line {
	l := newLine(c, cfg)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.window {
		if e.left == 0 && len(c.lines) > 0 { // settled by all of them
			c.open++
		}
		e.left++
	}
	c.lines = append(c.lines, l)
	l.enqueue(c.window)
	return l
}

// settled is called when the last line has settled an entry. It moves the watermark over what every line has settled.
func (c *Claim) settled() {
	c.open--
	if c.window[0].left == 0 {
		c.advance()
	}
	if c.full && !c.over(lowAt) {
		c.full = false
		if c.OnLow != nil {
			c.OnLow()
		}
	}
}

func (c *Claim) advance() {
	n := 0
	for n < len(c.window) && c.window[n].left == 0 {
		e := c.window[n]
		c.bytes -= e.bytes
		// Never backwards: after a truncated log, offsets that were settled before come again.
		if next := e.rec.Offset + 1; !c.moved || next > c.mark.Offset {
			c.mark, c.moved = Mark{Offset: next, Epoch: e.rec.LeaderEpoch}, true
		}
		c.window[n] = nil
		n++
	}
	c.window = c.window[n:]
}

// GoOn sets the watermark of a claim without records: that of an earlier claim of the same partition, which this one goes
// on from because the ownership never ended.
func (c *Claim) GoOn(from Mark) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mark, c.moved = from, true
}

// Move sets the watermark of a claim that goes on elsewhere in its log, also backwards, and what is added next need not
// follow what was added last. It reports false, and leaves the watermark as it is, if something is not settled yet.
func (c *Claim) Move(to Mark) (idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.window) > 0 || c.softened {
		return false
	}
	c.mark, c.moved = to, true
	return true
}

// Watermark is how far everything is settled. It reports false before the first record is, and once the claim is
// closed: nothing may be committed for it then.
func (c *Claim) Watermark() (Mark, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mark, c.moved && !c.shut
}

// Began is the offset of the first record that the claim was given, also of one that was dropped because it was ending; -1
// if there was none.
func (c *Claim) Began() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.began
}

// Soft closes when the claim begins to end.
func (c *Claim) Soft() <-chan struct{} { return c.soft }

// Hard is the context that ends when the grace is over; its cause says why.
func (c *Claim) Hard() context.Context { return c.hard }

// Drained closes when the claim is ending and nothing of it is in flight.
func (c *Claim) Drained() <-chan struct{} { return c.drained }

// Closed closes when nothing moves any more.
func (c *Claim) Closed() <-chan struct{} { return c.closed }

// Lost says whether the claim ends, or began to end, because somebody else may own the partition. It is known when Soft closes.
func (c *Claim) Lost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Is(c.why, record.ErrLost) || errors.Is(context.Cause(c.hard), record.ErrLost)
}

// EndSoft begins the end: nothing more begins, every wait ends. What is in line is dropped. why is record.ErrRevoked, ErrLost
// or ErrStopping; the first one stays, and no context ends with it yet.
func (c *Claim) EndSoft(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.softened {
		return
	}
	c.softened, c.why = true, why
	close(c.soft)
	for _, l := range c.lines {
		l.drop()
	}
	c.drain()
}

// EndHard says that the grace is over: every delivery's context ends with cause. The first cause stays.
func (c *Claim) EndHard(cause error) {
	c.EndSoft(cause)
	c.kill(cause)
}

// Close ends the claim: what is still in flight can settle nothing any more. cause is the contexts' if EndHard gave
// none before. It gives the last watermark, which is still to be committed, and reports false if there is none or the
// claim was closed before.
func (c *Claim) Close(cause error) (Mark, bool) {
	c.EndHard(cause)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shut {
		return Mark{}, false
	}
	c.shut = true
	c.window, c.bytes, c.open = nil, 0, 0
	close(c.closed)
	return c.mark, c.moved
}

// drain tells that nothing is in flight, once the claim is ending.
func (c *Claim) drain() {
	if c.softened && c.inFlight == 0 {
		select {
		case <-c.drained:
		default:
			close(c.drained)
		}
	}
}

package load

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// sender is a client of Kafka.
type sender interface {
	// send writes the records. After an error nobody knows which of them stand in their topics, and the sender is of no
	// further use.
	send(ctx context.Context, how ending, records []*kgo.Record) error
	close()
}

// producer writes to some topics with one client.
type producer struct {
	client   string
	endings  []ending // of which each write draws one
	rng      *rand.Rand
	grammars []*grammar // one a topic
	rate     int        // records a second
	steady   bool
	upTo     time.Time // what was due until then is written
	dial     func() (sender, error)
	sender   sender // nil while there is none
	tally    *tally
}

// tally is what a kind of client has been told is done.
type tally struct{ written, aborted, failed atomic.Int64 }

const (
	// patience is for one write. What is not written by then may be written later, or never.
	patience = 30 * time.Second
	// madeUp is for how much time a steady producer makes up.
	madeUp = time.Second
	// rest is between a failure and the next client.
	rest = time.Second
)

func (p *producer) run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	defer p.end()
	p.upTo = time.Now()
	for {
		select {
		case now := <-tick.C:
			if n := p.due(now); n == 0 || p.write(context.WithoutCancel(ctx), n) {
				tick.Reset(every)
			} else {
				tick.Reset(rest)
			}
		case <-ctx.Done():
			return
		}
	}
}

// due is how many records are to be written by now, which are taken for written then. Where writes are slow because the machine is
// busy there is less to do for it, as there must be for members that are to be through with everything at the end; a steady
// producer makes it up, but for what an outage has kept from being written: that stays unwritten, but for a second's.
func (p *producer) due(now time.Time) int {
	most := every
	if p.steady {
		most = madeUp
	}
	if begin := now.Add(-most); p.upTo.Before(begin) {
		p.upTo = begin
	}
	n := int(now.Sub(p.upTo)) * p.rate / int(time.Second)
	p.upTo = p.upTo.Add(time.Duration(n) * time.Second / time.Duration(p.rate))
	return n
}

// write writes about n records. Whatever goes wrong, the next one begins anew.
func (p *producer) write(ctx context.Context, n int) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var records []*kgo.Record
	for len(records) < n {
		records = append(records, p.grammars[p.rng.IntN(len(p.grammars))].next()...)
	}
	how := p.endings[p.rng.IntN(len(p.endings))]
	if err := p.send(ctx, how, records); err != nil {
		slog.Info("a write failed", "client", p.client, "err", err)
		p.tally.failed.Add(1)
		p.end()
		return false
	}
	if how == abort {
		p.tally.aborted.Add(int64(len(records)))
	} else {
		p.tally.written.Add(int64(len(records)))
	}
	return true
}

func (p *producer) send(ctx context.Context, how ending, records []*kgo.Record) (err error) {
	if p.sender == nil {
		if p.sender, err = p.dial(); err != nil {
			return err
		}
	}
	return p.sender.send(ctx, how, records)
}

// end throws the client away.
func (p *producer) end() {
	if p.sender != nil {
		p.sender.close()
		p.sender = nil
	}
}

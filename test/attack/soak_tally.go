package main

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/test/attack/audit"
	"github.com/headrace/headrace/test/attack/lab"
	"github.com/headrace/headrace/test/attack/member"
)

// counts are of a topic.
type counts struct{ all, effects int64 }

// tally counts what is written, before the topics forget it.
type tally struct {
	client *kgo.Client
	done   chan struct{}
	site   *lab.Site

	mu    sync.Mutex
	seen  map[string]counts
	moved time.Time
}

func startTally(ctx context.Context, s *lab.Site) (*tally, error) {
	t := &tally{site: s, done: make(chan struct{}), seen: map[string]counts{}, moved: time.Now()}
	var topics []string
	for name := range maps.Keys(member.Topics(s.Prefix)) {
		topics = append(topics, name)
	}
	var err error
	t.client, err = kgo.NewClient(kgo.SeedBrokers(s.Kafka.Brokers()...), kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, err
	}
	go t.run(ctx)
	return t, nil
}

func (t *tally) run(ctx context.Context) {
	defer close(t.done)
	for {
		fetches := t.client.PollFetches(ctx)
		if fetches.IsClientClosed() || ctx.Err() != nil {
			return
		}
		t.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			c := t.seen[r.Topic]
			c.all++
			for _, h := range r.Headers {
				if h.Key == audit.FateHeader && strings.EqualFold(string(h.Value), audit.Effect) {
					c.effects++
				}
			}
			t.seen[r.Topic], t.moved = c, time.Now()
		})
		t.mu.Unlock()
	}
}

// records is how many of all topics were seen.
func (t *tally) records() (n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.seen {
		n += c.all
	}
	return n
}

// end waits until nothing has come for some seconds, with nobody writing any more, and gives the counts.
func (t *tally) end(ctx context.Context) (map[string]counts, error) {
	const quiet = 10 * time.Second
	for backoff.Wait(ctx, time.Second) {
		t.mu.Lock()
		seen, still := maps.Clone(t.seen), time.Since(t.moved) > quiet
		t.mu.Unlock()
		if still {
			return seen, nil
		}
	}
	return nil, ctx.Err()
}

func (t *tally) stop() {
	t.client.Close()
	<-t.done
}

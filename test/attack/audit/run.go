package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

// auditor is one audit.
type auditor struct {
	Ledger
	conn   *pgx.Conn
	reader *reader
	topics map[string]*topic
	count  Count
}

// Run counts. An error says that it could not be counted, not that it is wrong.
func Run(ctx context.Context, l Ledger) (Count, error) {
	conn, err := pgx.Connect(ctx, l.DSN)
	if err != nil {
		return Count{}, err
	}
	defer func() { _ = conn.Close(ctx) }()
	rd, err := newReader(l.Brokers)
	if err != nil {
		return Count{}, err
	}
	defer rd.close()
	a := &auditor{Ledger: l, conn: conn, reader: rd, topics: map[string]*topic{}, count: Count{Reasons: map[string]int{}, Violations: []string{}}}
	if err := a.readTopics(ctx); err != nil {
		return Count{}, err
	}
	a.offsets()
	for _, route := range l.Routes {
		count := a.route
		if route.Fragile {
			count = a.fragile
		}
		if err := count(ctx, route); err != nil {
			return Count{}, fmt.Errorf("route %s: %w", route.Name, err)
		}
	}
	return a.count, a.leftOpen(ctx)
}

func (a *auditor) readTopics(ctx context.Context) error {
	for _, route := range a.Routes {
		for _, name := range []string{route.Topic, deadLetters(route.Topic), a.replayTopic(route.Topic), route.Publishes} {
			if name == "" || a.topics[name] != nil {
				continue
			}
			t, err := a.reader.read(ctx, name)
			if err != nil {
				return err
			}
			a.topics[name] = t
		}
	}
	return a.reader.commits(ctx, a.Group, a.topics)
}

func deadLetters(topic string) string { return topic + ".dlq" }

func (a *auditor) replayTopic(topic string) string { return topic + "." + a.Group + ".replay" }

func (a *auditor) complain(format string, args ...any) {
	a.count.Violations = append(a.count.Violations, fmt.Sprintf(format, args...))
}

// offsets requires that the group has committed everything it reads, and nothing beyond.
func (a *auditor) offsets() {
	read := map[string]bool{}
	for _, route := range a.Routes {
		read[route.Topic], read[a.replayTopic(route.Topic)] = true, true
	}
	for name, t := range a.topics {
		for _, partition := range t.open {
			a.complain("%s/%d has an open transaction", name, partition)
		}
		if !read[name] {
			continue
		}
		for partition, next := range t.next() {
			if at := t.committed[partition]; at < next || at > t.ends[partition] {
				a.complain("%s/%d is committed to %d; its records end at %d, and it at %d", name, partition, at, next, t.ends[partition])
			}
		}
	}
}

func (a *auditor) route(ctx context.Context, route Route) error {
	b := &books{Route: route, topic: a.topics[route.Topic], byHash: map[int64]*kgo.Record{}, letters: a.letters(route)}
	var err, err2, err3, err4, err5 error
	b.effects, err = readEffects(ctx, a.conn, route.Name, route.Topic)
	b.rows, err2 = readInbox(ctx, a.conn, a.Group, route.Name)
	b.parked, err5 = readParked(ctx, a.conn, a.Group, route.Name)
	waiting, err6 := ReadParked(ctx, a.conn, a.Group)
	replayed, err3 := readEffects(ctx, a.conn, route.Name, a.replayTopic(route.Topic))
	unbalanced, err4 := balances(ctx, a.conn, route.Name)
	if err := errors.Join(err, err2, err3, err4, err5, err6); err != nil {
		return err
	}
	for _, r := range b.topic.records {
		hash, _ := coordinates(b.topic.id, placeOf(r))
		b.byHash[hash] = r
	}
	b.replays(a.Group, a.topics[a.replayTopic(route.Topic)], replayed)
	b.outcomes()
	b.strangers()
	b.onceEach()
	b.inOrder()
	b.parkedCopies(slices.Concat(a.Waited, waiting))
	if route.Publishes != "" {
		b.events(a.topics[route.Publishes].records)
	}
	b.count.Violations = append(b.count.Violations, unbalanced...)
	a.add(b.count)
	return nil
}

func (a *auditor) add(c Count) {
	a.count.Produced += c.Produced
	a.count.Effected += c.Effected
	a.count.Duplicate += c.Duplicate
	a.count.Skipped += c.Skipped
	a.count.Dead += c.Dead
	a.count.Parked += c.Parked
	for reason, n := range c.Reasons {
		a.count.Reasons[reason] += n
	}
	a.count.Violations = append(a.count.Violations, c.Violations...)
}

// letters are the route's, by the place of the record that died.
func (a *auditor) letters(route Route) map[place][]letter {
	name := deadLetters(route.Topic)
	all := a.topics[name].records
	for _, l := range a.Earlier {
		if l.Topic == name {
			all = append(all, l.Record)
		}
	}
	found := map[place][]letter{}
	for _, r := range all {
		l, ok := open(r)
		switch {
		case !ok || l.fields["headrace-topic"] != route.Topic || l.fields["headrace-group"] != a.Group || !a.reads(l.fields["headrace-route"], route.Topic):
			a.complain("%s %s is no letter of a route of this group", name, placeOf(r))
		case l.fields["headrace-route"] == route.Name:
			found[l.at] = append(found[l.at], l)
			for field, text := range l.fields {
				if field != "headrace-id" {
					a.count.Violations = append(a.count.Violations, a.Secrets.Seen("the "+field+" of a letter of "+l.at.String(), text)...)
				}
			}
		}
	}
	return found
}

func (a *auditor) reads(route, topic string) bool {
	for _, r := range a.Routes {
		if r.Name == route && r.Topic == topic {
			return true
		}
	}
	return false
}

// leftOpen waits a little: the server notices the end of a process that was killed at its next read.
func (a *auditor) leftOpen(ctx context.Context) error {
	const patience, every = 10 * time.Second, 100 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for start := time.Now(); ; {
		open, err := transactions(ctx, a.conn)
		if err != nil || len(open) == 0 {
			return err
		}
		if time.Since(start) > patience {
			a.count.Violations = append(a.count.Violations, open...)
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

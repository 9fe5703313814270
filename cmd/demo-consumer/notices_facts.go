package main

import (
	"context"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/internal/topics"
	"github.com/headrace/headrace/record"
)

// notice is what the second consumer wrote of one charge.
type notice struct {
	times    int
	order    string
	account  int
	large    bool // the directory was to be asked
	language string
	degraded string // where the language came from, "" for where it should
}

// wanted is the language that the notice should be in.
func (n notice) wanted() string {
	if n.large {
		return languageOf(n.account)
	}
	return anyLanguage
}

// readEvents counts the events of each charge. The outbox may send one more than once, always with its id.
func (d *demo) readEvents(ctx context.Context, f *facts) error {
	return topics.Read(ctx, d.world.client, chargedTopic(d.settings.topic), func(r *kgo.Record) {
		for _, h := range r.Headers {
			if h.Key == record.UUIDHeader {
				id, _ := uuid.ParseBytes(h.Value) // what is none is nobody's charge
				f.events[id]++
			}
		}
	})
}

func (d *demo) readNotices(ctx context.Context, f *facts) error {
	const query = `select charge_id, count(*), min(order_id), min(account), bool_and(amount >= $2), min(language), coalesce(min(degraded), '') from notices where topic = $1 group by charge_id`
	var id uuid.UUID
	var n notice
	return d.each(ctx, query, []any{d.settings.topic, large}, []any{&id, &n.times, &n.order, &n.account, &n.large, &n.language, &n.degraded}, func() error {
		f.notices[id] = n
		return nil
	})
}

// checkNotices wants an event of each charge that is posted and one notice of it, and none of any other.
func (l *ledger) checkNotices() {
	posted := map[uuid.UUID]string{}
	for order, p := range l.postings {
		for _, charge := range p.charges {
			posted[charge] = order
		}
	}
	l.report.Events = len(l.events)
	for charge := range l.events {
		if _, is := posted[charge]; !is {
			l.problem("stray event", "charge %s has an event and no posting", charge)
		}
	}
	for charge, n := range l.notices {
		l.report.Notices += n.times
		if n.degraded != "" {
			l.report.Degraded[n.degraded]++
		}
		if want := n.wanted(); n.language != want && n.degraded != record.DegradedDefault {
			l.problem("language", "account %d has a notice in %q and should in %q", n.account, n.language, want)
		}
		if order := posted[charge]; order != n.order {
			l.problem("stray notice", "charge %s is posted for order %q and has a notice for %q", charge, order, n.order)
		}
	}
	for charge, order := range posted {
		if l.events[charge] == 0 || l.notices[charge].times != 1 {
			l.problem("notice", "charge %s of order %s has %d events and %d notices; should be one notice",
				charge, order, l.events[charge], l.notices[charge].times)
		}
	}
}

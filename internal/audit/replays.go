package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// replay is a letter that was given back to its route.
type replay struct {
	item

	of letter
}

// readReplays keeps what the group has read of the replay topic: that, and no more, must have come to something.
func (a *auditor) readReplays(ctx context.Context) error {
	log, err := dlq.OpenLog(ctx, a.cfg.Client, a.replayTopic(), a.cfg.Since)
	if errors.Is(err, kafka.ErrUnknownTopic) {
		return nil
	}
	if err != nil {
		return err
	}
	defer log.Close()
	a.replayID = log.ID()
	return log.Scan(ctx, func(r *record.Record) error {
		l, ok := openLetter(r)
		if !ok || l.topic != a.cfg.Topic || l.topicID != a.topicID || l.group != a.cfg.Group {
			return nil
		}
		rt := a.routes[l.route]
		if rt == nil {
			return nil
		}
		rt.ledger.Replays++
		if r.Offset < a.replayed[r.Partition] {
			it := a.item(r)
			_, it.place = placeOf(l.topicID, l.origin.partition, l.origin.offset)
			if it.id = l.id; rt.byOffset {
				it.id = it.place
			}
			rt.replays = append(rt.replays, &replay{*it, l})
		}
		return nil
	})
}

// judgeReplays finds replays that came to nothing: their record is still dead of something else, and they are not parked.
func (a *auditor) judgeReplays(ctx context.Context, rt *route) error {
	for left := rt.replays; len(left) > 0; {
		n := min(chunk, len(left))
		items := make([]*item, n)
		for i, r := range left[:n] {
			items[i] = &r.item
		}
		found, err := a.rows(ctx, rt, a.replayID, items)
		if err != nil {
			return err
		}
		for i, r := range left[:n] {
			if what := a.judgeReplay(rt, r, found[i]); what != "" {
				rt.ledger.WrongReplays++
				rt.ledger.find(Finding{Topic: a.replayTopic(), Partition: r.partition, Offset: r.offset, What: what})
			}
		}
		left = left[n:]
	}
	return nil
}

func (a *auditor) judgeReplay(rt *route, r *replay, f *facts) string {
	known := false
	for _, row := range []*row{f.mine, f.place} {
		if row == nil {
			continue
		}
		known = true
		if row.state != rowDead {
			return ""
		}
	}
	here := hashOf(fmt.Sprintf("%s/%d/%d", a.replayTopic(), r.partition, r.offset))
	origin := fmt.Sprintf("%s/%d/%d", a.cfg.Topic, r.of.origin.partition, r.of.origin.offset)
	switch {
	case f.parked, rt.letters.read[here]:
		return ""
	case !known && rt.swept && r.at.Before(a.forgets):
		return ""
	case !known:
		return "the replay of " + origin + " has no row, is not parked and has no letter"
	case a.gone.After(time.Time{}) && r.at.Before(a.gone):
		return ""
	}
	return "the replay of " + origin + " was passed, and its record is dead as before"
}

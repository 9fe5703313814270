package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/dlq"
)

// maxKept is how many records that look wrong are kept to be looked at once more, some 300 bytes each.
const maxKept = 100_000

// route is what is known of one.
type route struct {
	name     string
	consumer int32
	byOffset bool
	swept    bool
	// lows are the offset store's: everything below is done.
	lows    map[int32]int64
	letters *drawer
	replays []*replay
	ledger  Ledger
	// wrong are records that look wrong, and why.
	wrong []*item
	whys  map[*item]verdict
}

func (rt *route) verdict(f *facts) verdict {
	if rt.byOffset {
		return judgeByOffset(f)
	}
	return judge(f)
}

// first counts a record that is looked at for the first time, and keeps it if it will be looked at again.
func (rt *route) first(it *item, _ *facts, v verdict) {
	rt.ledger.Records++
	if v.outcome != Forgotten && v.outcome != Wrong {
		rt.ledger.count(v.outcome, 1)
		return
	}
	rt.wrong = append(rt.wrong, it)
	rt.whys[it] = v
}

// findRoutes asks which routes of the group there are, and which have read the topic.
func (a *auditor) findRoutes(ctx context.Context) error {
	rows, err := a.cfg.Pool.Query(ctx, routesSQL, a.cfg.Group, a.topicID.String())
	if err != nil {
		return fmt.Errorf("find the routes of group %s: %w", a.cfg.Group, err)
	}
	var known []string
	a.routes = map[string]*route{}
	var name string
	var id int32
	var store int16
	var read, swept bool
	_, err = pgx.ForEachRow(rows, []any{&id, &name, &store, &swept, &read}, func() error {
		known = append(known, name)
		if slices.Contains(a.cfg.Routes, name) || len(a.cfg.Routes) == 0 && read {
			rt := &route{
				name: name, consumer: id, byOffset: store == 1, swept: swept, letters: newDrawer(), whys: map[*item]verdict{},
				ledger: Ledger{Route: name, ByOffset: store == 1, Findings: []Finding{}, Notes: []Finding{}},
			}
			a.routes[name], a.order = rt, append(a.order, rt)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("find the routes of group %s: %w", a.cfg.Group, err)
	}
	if missing := a.missing(known); missing != "" {
		if len(known) == 0 {
			return fmt.Errorf("%w: the database knows no route of group %q", ErrNoRoute, a.cfg.Group)
		}
		return fmt.Errorf("%w: the database knows none of group %q %s; it knows: %s", ErrNoRoute, a.cfg.Group, missing, strings.Join(known, ", "))
	}
	for _, rt := range a.order {
		if err := a.findLows(ctx, rt); err != nil {
			return err
		}
	}
	return nil
}

func (a *auditor) missing(known []string) string {
	for _, name := range a.cfg.Routes {
		if !slices.Contains(known, name) {
			return "that is called " + name
		}
	}
	if len(a.order) == 0 {
		return "that has read the topic"
	}
	return ""
}

const routesSQL = `select c.id, c.route, c.store, c.swept_at is not null or c.sweep_page > 0,
	exists (select from headrace.claim_starts s where s.consumer_id = c.id and s.topic_id = $2::text::uuid)
	or exists (select from headrace.offsets o where o.consumer_id = c.id and o.topic_id = $2::text::uuid)
from headrace.consumers c where c.consumer_group = $1 order by c.route`

func (a *auditor) findLows(ctx context.Context, rt *route) error {
	rt.lows = map[int32]int64{}
	rows, err := a.cfg.Pool.Query(ctx, `select part, low from headrace.offsets where consumer_id = $1 and topic_id = $2::text::uuid`, rt.consumer, a.topicID.String())
	if err == nil {
		var part int32
		var low int64
		_, err = pgx.ForEachRow(rows, []any{&part, &low}, func() error { rt.lows[part] = low; return nil })
	}
	if err != nil {
		return fmt.Errorf("read the offset store of route %s: %w", rt.name, err)
	}
	return nil
}

// again looks at whatever looked wrong a second time, with the letters that were written meanwhile, and by the places of
// records whose ids this audit may not know. What is left is told.
func (a *auditor) again(ctx context.Context, ends map[int32]int64) error {
	if err := a.moreLetters(ctx, ends); err != nil {
		return err
	}
	for _, rt := range a.order {
		if err := a.judge(ctx, rt, rt.wrong, func(it *item, _ *facts, v verdict) { rt.whys[it] = v }); err != nil {
			return err
		}
		if err := a.byPlace(ctx, rt); err != nil {
			return err
		}
		for _, it := range rt.wrong {
			a.tell(rt, it)
		}
		a.tellRepeated(rt)
		if err := a.judgeReplays(ctx, rt); err != nil {
			return err
		}
	}
	return nil
}

// relieve makes room when many look wrong: as a rule because the route's identity is its own, and then their places tell.
// Of those that look wrong for good half are kept for the second look, and the rest is told at once.
func (a *auditor) relieve(ctx context.Context, rt *route) error {
	if len(rt.wrong) < a.cfg.kept {
		return nil
	}
	if err := a.byPlace(ctx, rt); err != nil {
		return err
	}
	var kept []*item
	for _, it := range rt.wrong {
		if o := rt.whys[it].outcome; (o == Wrong || o == Forgotten) && len(kept) < a.cfg.kept/2 {
			kept = append(kept, it)
			continue
		}
		a.tell(rt, it)
		delete(rt.whys, it)
	}
	rt.wrong = kept
	return nil
}

// tell counts a record for good.
func (a *auditor) tell(rt *route, it *item) {
	v := rt.whys[it]
	rt.ledger.count(v.outcome, 1)
	if v.outcome == Wrong {
		rt.ledger.find(Finding{Topic: a.cfg.Topic, Partition: it.partition, Offset: it.offset, Outcomes: v.outcomes, What: v.what})
	}
}

func (a *auditor) moreLetters(ctx context.Context, ends map[int32]int64) error {
	if ends == nil || !slices.ContainsFunc(a.order, func(rt *route) bool { return len(rt.wrong) > 0 }) {
		return nil
	}
	log, err := dlq.OpenLog(ctx, a.cfg.Client, a.cfg.Letters, a.cfg.Since)
	if err != nil {
		return err
	}
	defer log.Close()
	log.From(ends)
	_, err = a.readLetters(ctx, log)
	return err
}

// tellRepeated names letters that stand twice.
func (a *auditor) tellRepeated(rt *route) {
	for at, l := range rt.letters.of {
		if l.repeated == 0 {
			continue
		}
		rt.ledger.Repeated += int64(l.repeated)
		rt.ledger.note(Finding{
			Topic: a.cfg.Topic, Partition: at.partition, Offset: at.offset, Outcomes: 1,
			What: fmt.Sprintf("it has %d letters of one death", l.repeated+1),
		})
	}
	slices.SortFunc(rt.ledger.Notes, func(x, y Finding) int {
		if x.Partition != y.Partition {
			return int(x.Partition - y.Partition)
		}
		return int(min(max(x.Offset-y.Offset, -1), 1))
	})
}

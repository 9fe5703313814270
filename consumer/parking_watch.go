package consumer

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/record"
)

// parkingInterval is between two looks at what is parked.
const parkingInterval = 5 * time.Second

// watchParking tells the hooks what the routes have parked, and of parked records that run for too long, until ctx ends.
func (e *engine) watchParking(ctx context.Context) {
	if len(e.parked.routes) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(parkingInterval)
		defer tick.Stop()
		told := map[*record.Record]bool{}
		for {
			for _, r := range e.parked.routes {
				e.lookAtParking(ctx, r)
			}
			told = e.reportLate(told)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	e.watch(func() {
		cancel()
		<-done
	})
}

func (e *engine) lookAtParking(ctx context.Context, r parkedRoute) {
	ctx, cancel := context.WithTimeout(ctx, parkingInterval)
	defer cancel()
	st, err := r.store.Stats(ctx)
	if err != nil {
		e.c.cfg.Logger.DebugContext(ctx, "what is parked is not known", "route", r.name, "error", err)
		return
	}
	if f := e.c.hooks.OnParking; f != nil {
		f(record.ParkingInfo{Route: r.name, Records: st.Records, Oldest: st.Oldest, Late: st.Lag})
	}
}

// reportLate is what the transport does for records of topics: a decoder that does not return has nobody else to tell of
// it. told are those that it has told of.
func (e *engine) reportLate(told map[*record.Record]bool) map[*record.Record]bool {
	still := map[*record.Record]bool{}
	for _, route := range e.parked.routes {
		r, took := route.source.Longest()
		if r == nil || took < route.patience {
			continue
		}
		still[r] = true
		if !told[r] {
			e.c.hooks.Report(record.Report{
				Kind: record.ReportStuckRecord, Route: route.name, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Age: took,
				Hint: fmt.Sprintf("it was parked, and its handler does not heed its context, or its decoder does not return; after MaxPollInterval %s this process gives up",
					e.c.cfg.MaxPollInterval),
			})
		}
	}
	return still
}

// hung says which record has been running past MaxPollInterval, nil for none.
func (r parkedRoute) hung(most time.Duration) error {
	rec, took := r.source.Longest()
	if rec == nil || took < most {
		return nil
	}
	return fmt.Errorf("the parked record %s/%d/%d of route %q has been running for %s, longer than MaxPollInterval %s: restart the process",
		rec.Topic, rec.Partition, rec.Offset, r.name, took.Round(time.Second), most)
}

// parkedSince is since when the oldest record of a route is parked, the zero time if none is. What an inbox writes after
// that it must not forget: the record is still to come, and another one with its id may have had its effect meanwhile.
func (c *Consumer) parkedSince(ctx context.Context, route string) (time.Time, error) {
	var since *time.Time
	err := c.cfg.DB.QueryRow(ctx, `select min(k.since) from headrace.parked_keys k
		where k.consumer_id = (select id from headrace.consumers where consumer_group = $1 and route = $2)`, c.cfg.Group, route).Scan(&since)
	if err != nil || since == nil {
		return time.Time{}, err
	}
	return *since, nil
}

// unparked finds routes that do not park and have records parked: nobody would try them, and later records of their keys
// would overtake them.
func (c *Consumer) unparked(ctx context.Context) []Problem {
	var names []string
	for _, s := range c.specs {
		if !s.parks() {
			names = append(names, s.name)
		}
	}
	rows, _ := c.cfg.DB.Query(ctx, `select c.route, sum(p.records)::bigint from headrace.consumers c
		join headrace.parked_counts p on p.consumer_id = c.id
		where c.consumer_group = $1 and c.route = any($2::text[]) group by 1 having sum(p.records) > 0 order by 1`,
		c.cfg.Group, names) // ForEachRow has its error
	var ps []Problem
	var route string
	var parked int
	_, err := pgx.ForEachRow(rows, []any{&route, &parked}, func() error {
		ps = append(ps, Problem{
			What: fmt.Sprintf("route %q has %s parked, and no Park: nobody would try them, and later records of their keys would overtake them",
				route, plural(parked, "record")),
			Fix: "give it its Park back until nothing of it is parked",
		})
		return nil
	})
	if err != nil { // a schema without parking, which Check may meet, has none
		c.cfg.Logger.DebugContext(ctx, "what is parked is not known", "error", err)
	}
	return ps
}

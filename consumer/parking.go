package consumer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/internal/pools"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/middleware"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// parkingConns bounds the connections for what is parked, over all routes. They are not those of Config.DB: handlers that
// hold all of these would keep leases from being renewed.
const parkingConns = 4

// parkedHandler is the name of a route's third handler in the router. No route can have a name with a zero byte.
func parkedHandler(route string) string { return route + "\x00parked" }

// parks says whether the route parks.
func (s spec) parks() bool { return s.options.Park != nil }

// ordered says that what is parked is kept in the order of its keys.
func (s spec) ordered() bool { return s.options.Order == kafka.ByKey }

// parkedKey names the line of a record for the inbox, nil for a route that does not park.
func (s spec) parkedKey() func(*record.Record) int64 {
	if !s.parks() {
		return nil
	}
	return func(r *record.Record) int64 { return parking.KeyID(r, s.ordered()) }
}

// parkingProblems finds what keeps the route from parking.
func (s spec) parkingProblems(of string) []Problem {
	if !s.parks() {
		return nil
	}
	var ps []Problem
	if s.options.Order == kafka.ByPartition {
		ps = append(ps, Problem{
			What: of + " parks, and keeps the order of whole partitions: everything behind a parked record would have to be parked too",
			Fix:  "set Order to kafka.ByKey or kafka.Unordered, or leave Park out: records then wait in Kafka",
		})
	}
	if s.byOffset() {
		ps = append(ps, Problem{
			What: of + " parks, and its Store is the offset store, for which whatever is behind its offset is done: what is parked would never run",
			Fix:  "set Store to dedup.ByID, or leave Park out",
		})
	}
	if err := s.options.Park.Validate(); err != nil {
		ps = append(ps, Problem{What: of + ": Park cannot work", Err: err, Fix: "correct Options.Park; its zero value works"})
	}
	return ps
}

// parked is the parking of the routes that have one, open during a Run.
type parked struct {
	pool   *pgxpool.Pool // nil until a route parks
	routes []parkedRoute
}

type parkedRoute struct {
	name     string
	patience time.Duration // how long an attempt may run before it is reported
	store    *parking.Store
	source   *parking.Source
}

// openParking opens the pool that the routes' parking shares.
func (e *engine) openParking(ctx context.Context) error {
	if e.parked.pool != nil {
		return nil
	}
	cfg := e.c.cfg.DB.Config()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = parkingConns, 0, 0
	pool, shut, err := pools.Open(ctx, cfg, e.c.applicationName())
	if err != nil {
		return fmt.Errorf("open the pool for what is parked: %w", err)
	}
	e.parked.pool = pool
	e.watch(shut)
	return nil
}

// park gives rt its parking, once the inbox knows the route.
func (e *engine) park(ctx context.Context, s spec, rt *middleware.Route) (*parking.Source, error) {
	if err := e.openParking(ctx); err != nil {
		return nil, err
	}
	store, err := parking.Open(ctx, e.parked.pool, e.c.cfg.Group, s.name, *s.options.Park)
	if err != nil {
		return nil, err
	}
	rt.Parking = parking.NewParker(store, s.ordered())
	source := parking.NewSource(store, parking.SourceConfig{
		Route: s.name, MaxBatch: s.options.MaxBatch, Lanes: s.options.Lanes, Poll: pollOf(store.Policy()),
		Gates: []parking.Gate{rt.Gates}, DrainGrace: e.c.cfg.DrainGrace, HardGrace: e.c.cfg.HardGrace,
		Report: e.c.hooks.Report,
	})
	e.parked.routes = append(e.parked.routes, parkedRoute{
		s.name, max(s.options.AttemptTimeout, s.callTimeout()) + e.c.cfg.HardGrace, store, source,
	})
	return source, nil
}

// pollOf is how often it is looked for what is due: each second is enough for who waits for a minute.
func pollOf(p parking.Policy) time.Duration {
	return min(time.Second, max(p.Base/4, 10*time.Millisecond))
}

// stop begins nothing more and lets what runs finish within the graces.
func (p *parked) stop() {
	var wg sync.WaitGroup
	for _, r := range p.routes {
		wg.Go(func() { _ = r.source.Close() }) // always nil
	}
	wg.Wait()
}

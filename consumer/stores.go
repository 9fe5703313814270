package consumer

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/dedup"
)

const storesSQL = `select route, store from headrace.consumers where consumer_group = $1 and route = any($2::text[]) order by route`

// otherStores finds routes that have run with another store. A schema without stores, which Check may meet, has none.
func (c *Consumer) otherStores(ctx context.Context) []Problem {
	is := make(map[string]dedup.Store, len(c.specs))
	for _, s := range c.specs {
		is[s.name] = s.options.Store
	}
	rows, _ := c.cfg.DB.Query(ctx, storesSQL, c.cfg.Group, namesOf(c.specs)) // ForEachRow has its error
	var ps []Problem
	var route string
	var was dedup.Store
	_, err := pgx.ForEachRow(rows, []any{&route, &was}, func() error {
		if was != is[route] {
			ps = append(ps, Problem{
				What: fmt.Sprintf("route %q has run with the %s, and its Store is the %s now: neither knows what the other has done", route, was, is[route]),
				Fix: "go on with the " + was.String() + ", or, once the group has no lag and all its members are stopped, give the route another Name; " +
					"see 'Another store' in docs/operations.md",
			})
		}
		return nil
	})
	if err != nil { // the route asks again when it is opened
		c.cfg.Logger.DebugContext(ctx, "the stores that the routes have run with are not known", "error", err)
	}
	return ps
}

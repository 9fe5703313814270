package dlq

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// known looks whether somebody takes a letter up, once for each route.
func (r *replayer) known(ctx context.Context, env Envelope) (unknown, err error) {
	if r.cfg.Known == nil {
		return nil, nil
	}
	name := [2]string{env.Group, env.Route}
	found, asked := r.found[name]
	if !asked {
		if found, err = r.cfg.Known(ctx, env.Group, env.Route); err != nil {
			return nil, fmt.Errorf("look for route %q of consumer group %q: %w", env.Route, env.Group, err)
		}
		r.found[name] = found
	}
	if !found {
		return &UnknownRouteError{Group: env.Group, Route: env.Route}, nil
	}
	return nil, nil
}

// Directory makes a ReplayConfig.Known of a consumer's database: it knows the routes that have run there at least once.
// One that was retired since is among them; a misspelt one is not.
func Directory(db Querier) func(ctx context.Context, group, route string) (bool, error) {
	return func(ctx context.Context, group, route string) (bool, error) {
		if !storable(group) || !storable(route) {
			return false, nil
		}
		rows, err := db.Query(ctx, `select exists (select from headrace.consumers where consumer_group = $1 and route = $2)`, group, route)
		if err != nil {
			return false, err
		}
		return pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
	}
}

package consumer

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// strangersSQL lists the routes of a consumer group but for those that run here.
const strangersSQL = `select route from headrace.consumers
where consumer_group = $1 and route <> all($2::text[]) order by route limit 20`

// strangers are the routes of this consumer group that other members run, or once ran, and this one does not.
func (c *Consumer) strangers(ctx context.Context) ([]string, error) {
	rows, err := c.cfg.DB.Query(ctx, strangersSQL, c.cfg.Group, namesOf(c.specs))
	if err != nil {
		return nil, fmt.Errorf("list the routes of consumer group %q: %w", c.cfg.Group, err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list the routes of consumer group %q: %w", c.cfg.Group, err)
	}
	return names, nil
}

// warnOfStrangers warns of them, once: each record goes to one member only, and its offset moves when the routes of that
// member have settled it, so a route that others run never sees it. It is no error, because it is so while a deploy
// rolls, and of a route that was retired the row stays.
func (c *Consumer) warnOfStrangers(ctx context.Context) {
	names, err := c.strangers(ctx)
	switch {
	case err != nil:
		c.cfg.Logger.DebugContext(ctx, "other members' routes not known", "error", err)
	case len(names) > 0:
		c.cfg.Logger.WarnContext(ctx, "members of a consumer group must run the same routes, and this database knows routes of the "+
			"group that do not run here: if another process runs them, they miss what this one reads; if a deploy is rolling, "+
			"or they are retired, all is well", "group", c.cfg.Group, "not_here", names)
	}
}

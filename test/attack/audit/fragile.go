package audit

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

// fragile counts a route whose topic was cut, or deleted and created again, during the run. Of what is gone nobody can say
// whether it was read, so it has one effect at most; what stands there has exactly one. Each record has an id of its own.
func (a *auditor) fragile(ctx context.Context, route Route) error {
	effects, err := effectsByID(ctx, a.conn, route.Name)
	if err != nil {
		return err
	}
	for _, r := range a.topics[route.Topic].records {
		a.count.Produced++
		switch n := effects[identity(r)]; n {
		case 1:
			a.count.Effected++
		default:
			a.complain("route %s: %s has %d effects", route.Name, placeOf(r), n)
		}
		delete(effects, identity(r))
	}
	for id, n := range effects {
		a.count.Gone++
		if n > 1 {
			a.complain("route %s: id %s, which is gone, has %d effects", route.Name, id, n)
		}
	}
	for _, l := range a.topics[deadLetters(route.Topic)].records {
		if text(l, "headrace-route") == route.Name {
			a.complain("route %s: a dead letter of a record that nothing was wrong with: %s", route.Name, errorOf(l))
		}
	}
	return nil
}

func errorOf(letter *kgo.Record) string { return text(letter, "headrace-error") }

func effectsByID(ctx context.Context, conn *pgx.Conn, route string) (map[string]int, error) {
	rows, err := conn.Query(ctx, `select id, count(*) from effects where route = $1 group by id`, route)
	if err != nil {
		return nil, err
	}
	found, id, n := map[string]int{}, []byte(nil), 0
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error {
		found[string(id)] = n
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("effects of %s: %w", route, err)
	}
	return found, nil
}

package main

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/payments"
)

// ledger is what became of a phase's orders, counted from the topics, Postgres and the service's book.
type ledger struct {
	Records   int `json:"records"`
	Effected  int `json:"effected"`
	Duplicate int `json:"duplicate"`
	Skipped   int `json:"skipped"`
	Dead      int `json:"dead"`
	Parked    int `json:"parked"`
	Charges   int `json:"charges"`
	// Astray are the records without an outcome, and the orders that are not booked as often as they must be.
	Astray int `json:"astray"`
	// Doubles are charges that nobody asked for.
	Doubles int `json:"doubles"`
	// OutageLetters are dead letters of orders that nothing is wrong with.
	OutageLetters int `json:"outage_letters"`
}

func (l ledger) sum() int { return l.Effected + l.Duplicate + l.Skipped + l.Dead + l.Parked }

// count makes the ledger. Nothing consumes any more.
func (p *phase) count(ctx context.Context) error {
	ends, err := p.admin.ListEndOffsets(ctx, p.topic)
	if err != nil {
		return err
	}
	ends.Each(func(o kadm.ListedOffset) { p.ledger.Records += int(o.Offset) })
	if err := p.countOutcomes(ctx); err != nil {
		return err
	}
	if err := p.countLetters(ctx); err != nil {
		return err
	}
	return p.countOrders(ctx)
}

func (p *phase) countOutcomes(ctx context.Context) error {
	const query = `select state, count(*) from headrace.inbox where consumer_id =
		(select id from headrace.consumers where consumer_group = $1 and route = $2) group by state`
	rows, err := p.db.Query(ctx, query, p.topic, routeName)
	if err != nil {
		return err
	}
	outcomes := [...]*int{&p.ledger.Effected, &p.ledger.Skipped, &p.ledger.Dead, &p.ledger.Duplicate}
	var state, n int
	_, err = pgx.ForEachRow(rows, []any{&state, &n}, func() error { *outcomes[state] = n; return nil })
	return err
}

func (p *phase) countLetters(ctx context.Context) error {
	read := dlq.ReadConfig{Client: p.world.client, Topic: dlq.DefaultTopic(p.topic)}
	_, err := dlq.Read(ctx, read, func(e *dlq.Entry) error {
		var o payments.Request
		if json.Unmarshal(e.Value, &o) != nil || !broke(p.settings.seed, o.Order) || e.Envelope.Reason != dlq.Permanent {
			p.ledger.OutageLetters++
		}
		return nil
	})
	return err
}

// countOrders wants each order booked once and charged once, but for those that cannot pay.
func (p *phase) countOrders(ctx context.Context) error {
	booked := map[string]int{}
	rows, err := p.db.Query(ctx, `select order_id from bookings where topic = $1`, p.topic)
	if err != nil {
		return err
	}
	var id string
	if _, err := pgx.ForEachRow(rows, []any{&id}, func() error { booked[id]++; return nil }); err != nil {
		return err
	}
	charged, err := p.charges(ctx)
	if err != nil {
		return err
	}
	p.ledger.Astray = max(p.ledger.Records-p.ledger.sum(), p.ledger.sum()-p.ledger.Records)
	for n := range p.produced {
		order := orderID(p.topic, n+1)
		want := 1
		if broke(p.settings.seed, order) {
			want = 0
		}
		if booked[order] != want || charged[order] < want {
			p.ledger.Astray++
		}
		p.ledger.Charges += charged[order]
		p.ledger.Doubles += max(0, charged[order]-want)
	}
	return nil
}

// charges asks the service itself, past the proxy.
func (p *phase) charges(ctx context.Context) (map[string]int, error) {
	all, err := payments.Charges(ctx, &http.Client{Transport: p.base}, p.service.URL())
	if err != nil {
		return nil, err
	}
	of := map[string]int{}
	for _, c := range all {
		of[c.Order]++
	}
	return of, nil
}

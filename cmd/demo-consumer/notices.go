package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/record"
)

// Notices are the second consumer's: it reads the events that the first one publishes, and writes each customer a notice,
// of a large charge in the customer's language. While the directory that knows the language is away, the last known one
// will do, or the default one: that is no money.
const (
	noticeRoute = "write-notice"
	large       = 9000 // cents, from which on the directory is asked
	anyLanguage = "en"
)

func noticeGroup(orders string) string { return orders + "-notices" }

// notices writes notices.
type notices struct {
	topic     string // of the orders
	client    *http.Client
	directory string // its URL
	languages *downstream.Fallback[customer]
}

// openNotices makes what the second consumer calls.
func (d *demo) openNotices() (err error) {
	if d.directory, err = startDirectory(); err != nil {
		return err
	}
	d.lookups, err = downstream.New(downstream.Config{
		Name:    "directory",
		Breaker: downstream.BreakerConfig{Trip: func(downstream.BreakerCounts) bool { return false }}, // nobody need wait for it
		Hooks:   &record.Hooks{OnDegraded: d.tally.degrade}, RefuseInTransaction: true,
	})
	if err != nil {
		return err
	}
	n := &notices{
		topic: d.settings.topic, directory: d.directory.url,
		client: &http.Client{Transport: d.lookups.Transport(d.transport)},
	}
	n.languages, err = downstream.NewFallback(d.lookups, downstream.FallbackConfig[customer]{
		Operation: "language",
		Default:   func(string) (customer, bool) { return customer{Language: anyLanguage}, true },
	})
	d.notices = n
	return err
}

func (d *demo) noticeRoute() consumer.AnyRoute {
	return consumer.CallRoute[charged, downstream.Read[customer]]{
		Name: noticeRoute, Topic: chargedTopic(d.settings.topic),
		Dependency: d.lookups, Repeat: consumer.RepeatSafe, CallTimeout: time.Second,
		Call: d.notices.look, Queue: d.notices.write,
	}
}

// look asks the directory, where it matters.
func (n *notices) look(ctx context.Context, e consumer.Event[charged]) (downstream.Read[customer], error) {
	if e.Data.Amount < large {
		return downstream.Read[customer]{Value: customer{Language: anyLanguage}}, nil
	}
	account := strconv.Itoa(e.Data.Account)
	return n.languages.Get(ctx, account, func(ctx context.Context) (c customer, err error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.directory+"/customers/"+account, http.NoBody)
		if err != nil {
			return c, err
		}
		return fetch[customer](n.client, r)
	})
}

// write writes the notice, and how the language was found if the directory was not asked.
func (n *notices) write(b *pgx.Batch, e consumer.Event[charged], r downstream.Read[customer]) error {
	var degraded *string
	if r.Degraded != nil {
		degraded = &r.Degraded.Source
	}
	const insert = `insert into notices (topic, charge_id, order_id, account, amount, language, degraded) values ($1, $2, $3, $4, $5, $6, $7)`
	o := e.Data
	b.Queue(insert, n.topic, o.Charge, o.Order, o.Account, o.Amount, r.Value.Language, degraded)
	return nil
}

// joinNotices starts the second consumer: another group, another topic, the same database.
func (d *demo) joinNotices(ctx context.Context) (*member, error) {
	cfg := d.config(nil)
	cfg.Group = noticeGroup(d.settings.group)
	m, err := d.startMember(ctx, cfg, d.noticeRoute())
	if err != nil {
		return nil, fmt.Errorf("the consumer of events: %w", err)
	}
	return m, nil
}

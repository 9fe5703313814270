package main

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// The bank of a few accounts is away for longer than an order has attempts. Its orders are parked then, in Postgres, and
// those of the same account that come later wait behind them; all other accounts go on. An order that fails for good is
// parked too before it is dead, so the waits are short here; hours are what parking is for.
const (
	bankShare   = 40 // one of so many accounts is the bank's
	parkedFor   = time.Second
	parkedTimes = 2
)

func ofBank(account int) bool { return account%bankShare == 0 }

// parks says whether orders are parked: for the offset store, whatever is behind its offset is done.
func (s settings) parks() bool { return !s.byOffset() }

// park has a route park, where its store can.
func (d *demo) park(o consumer.Options) consumer.Options {
	if d.settings.parks() {
		o.Park = &parking.Policy{Base: parkedFor, Cap: parkedFor, Rounds: parkedTimes, Lease: max(time.Second, d.settings.session)}
	}
	return o
}

// readParked reads what still waits.
func (d *demo) readParked(ctx context.Context, f *facts) error {
	const query = `select message_id from headrace.parked_records where consumer_id =
		(select id from headrace.consumers where consumer_group = $1 and route = $2)`
	var id uuid.UUID
	return d.each(ctx, query, []any{d.settings.group, route}, []any{&id}, func() error {
		f.parked[id] = true
		return nil
	})
}

// bank brings the bank back once orders have used up their attempts. It is away from the start.
func (s *scenario) bank(ctx context.Context) error {
	d := s.demo
	if !d.settings.parks() {
		return nil
	}
	defer d.payments.BankAway(false)
	d.progress.note("the bank of %d accounts is away", accounts/bankShare)
	eventually(ctx, patience, func() bool { return d.payments.BankRefusals() >= attempts })
	backoff.Wait(ctx, parkedFor/2) // others follow
	d.progress.note("that bank is back; many of its orders are parked", accounts/bankShare)
	return nil
}

// resettle counts one more end of a record: of a parked one it is the end, of any other a redelivery. Callers hold mu.
func (t *tally) resettle(r settled, o record.Outcome) {
	_, waits := t.waits[r]
	switch {
	case waits && o == record.Parked: // for another round
	case waits:
		delete(t.waits, r)
		t.outcomes[record.Parked]--
		t.outcomes[o]++
	default:
		t.again++
	}
}

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/payments"
	"github.com/headrace/headrace/internal/topics"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/record"
)

// facts reads what is durable: both topics, all tables and the payment service's book. Nothing may consume meanwhile.
func (d *demo) facts(ctx context.Context) (*facts, error) {
	f := &facts{
		rows: map[uuid.UUID]row{}, letters: map[place][]dlq.Reason{},
		postings: map[string]posting{}, balances: map[int]int64{}, charges: map[string][]payments.Charge{},
		events: map[uuid.UUID]int{}, notices: map[uuid.UUID]notice{}, parked: map[uuid.UUID]bool{},
	}
	reads := []func(context.Context, *facts) error{
		d.readInputs, d.readLetters, d.readInbox, d.readPostings, d.readBalances, d.readCharges,
		d.readEvents, d.readNotices, d.readParked,
	}
	if d.settings.byOffset() {
		reads = append(reads, d.readDone)
	}
	for _, read := range reads {
		if err := read(ctx, f); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (d *demo) readInputs(ctx context.Context, f *facts) error {
	id, err := d.topicID(ctx)
	if err != nil {
		return err
	}
	var broken error
	err = topics.Read(ctx, d.world.client, d.settings.topic, func(r *kgo.Record) {
		in, err := inputOf(r, id)
		if err != nil {
			broken = err
		}
		f.inputs = append(f.inputs, in)
	})
	slices.SortFunc(f.inputs, func(a, b input) int {
		return cmp.Or(cmp.Compare(a.place.partition, b.place.partition), cmp.Compare(a.place.offset, b.place.offset))
	})
	return cmp.Or(err, broken)
}

func (d *demo) topicID(ctx context.Context) (uuid.UUID, error) {
	admin, err := kafka.NewAdmin(d.world.client)
	if err != nil {
		return uuid.Nil, err
	}
	defer admin.Close()
	ids, err := admin.TopicIDs(ctx, d.settings.topic)
	return ids[d.settings.topic], err
}

// inputOf works a record's identity out once more, from its bytes.
func inputOf(r *kgo.Record, topicID uuid.UUID) (input, error) {
	in := input{place: place{r.Partition, r.Offset}}
	if json.Unmarshal(r.Value, &in.order) != nil {
		in.order.Kind = garbled
	}
	rec := &record.Record{Topic: r.Topic, TopicID: topicID, Partition: r.Partition, Offset: r.Offset, Value: r.Value}
	if err := dedup.Identify(rec); err != nil {
		return in, err
	}
	in.byPlace, in.anew = rec.Identity.Key, dlq.NewIDAt(topicID, r.Partition, r.Offset)
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, record.Header{Key: h.Key, Value: h.Value})
	}
	err := dedup.Identify(rec, dedup.Header(idHeader))
	in.identity = rec.Identity
	return in, err
}

func (d *demo) readLetters(ctx context.Context, f *facts) error {
	return topics.Read(ctx, d.world.client, dlq.DefaultTopic(d.settings.topic), func(r *kgo.Record) {
		headers := make([]record.Header, len(r.Headers))
		for i, h := range r.Headers {
			headers[i] = record.Header{Key: h.Key, Value: h.Value}
		}
		if e, _, ok := dlq.Decode(headers); ok && e.Group == d.settings.group && e.Origin.Topic == d.settings.topic {
			at := place{e.Origin.Partition, e.Origin.Offset}
			f.letters[at] = append(f.letters[at], e.Reason)
		}
	})
}

func (d *demo) readInbox(ctx context.Context, f *facts) error {
	// A replay takes the row over and leaves the first record's coordinates beside its own.
	const query = `select message_id, state, value_hash, coalesce(original, coordinates), original is not null from headrace.inbox
		where consumer_id = (select id from headrace.consumers where consumer_group = $1 and route = $2)`
	var id uuid.UUID
	var state int
	var r row
	return d.each(ctx, query, []any{d.settings.group, route}, []any{&id, &state, &r.hash, &r.coordinates, &r.replayed}, func() error {
		states := [...]record.Outcome{record.Effected, record.Skipped, record.Dead, record.Duplicate} // the last: it is known by another id now
		if state < 0 || state >= len(states) {
			return fmt.Errorf("inbox row %s has state %d", id, state)
		}
		r.outcome = states[state]
		f.rows[id] = r
		return nil
	})
}

// readDone reads how far everything is done: to the offset store's low, or to what the group has committed, which moves
// over nothing else.
func (d *demo) readDone(ctx context.Context, f *facts) error {
	id, err := d.topicID(ctx)
	if err != nil {
		return err
	}
	committed, err := d.admin.FetchOffsets(ctx, d.settings.group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return err
	}
	f.done = map[int32]int64{}
	for partition, o := range committed[d.settings.topic] {
		f.done[partition] = o.At
	}
	const query = `select part, low from headrace.offsets where topic_id = $3::text::uuid and consumer_id =
		(select id from headrace.consumers where consumer_group = $1 and route = $2)`
	var partition int32
	var low int64
	return d.each(ctx, query, []any{d.settings.group, route, id.String()}, []any{&partition, &low}, func() error {
		f.done[partition] = max(f.done[partition], low)
		return nil
	})
}

func (d *demo) readPostings(ctx context.Context, f *facts) error {
	const query = `select order_id, count(*), min(seq), min(account), sum(amount)::bigint, array_agg(charge_id)
		from postings where topic = $1 group by order_id`
	var id string
	var p posting
	return d.each(ctx, query, []any{d.settings.topic}, []any{&id, &p.times, &p.seq, &p.account, &p.amount, &p.charges}, func() error {
		f.postings[id] = p
		p.charges = nil // the next row's are its own
		return nil
	})
}

func (d *demo) readBalances(ctx context.Context, f *facts) error {
	const query = `select id, balance from accounts where topic = $1`
	var account int
	var balance int64
	return d.each(ctx, query, []any{d.settings.topic}, []any{&account, &balance}, func() error {
		f.balances[account] = balance
		return nil
	})
}

// readCharges asks the payment service itself.
func (d *demo) readCharges(ctx context.Context, f *facts) error {
	all, err := payments.Charges(ctx, &http.Client{Transport: d.transport}, d.payments.URL())
	if err != nil {
		return err
	}
	for _, c := range all {
		f.charges[c.Order] = append(f.charges[c.Order], c)
	}
	return nil
}

func (d *demo) each(ctx context.Context, query string, args, into []any, f func() error) error {
	rows, err := d.world.db.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, into, f)
	return err
}

package peer

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/bench/internal/child"
	"github.com/headrace/headrace/bench/internal/load"
	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/outbox"
)

// headraceQueue is a route whose effects are queued: the statements of a whole group are one trip.
func headraceQueue(ctx context.Context, s *child.Session) error {
	w := newWatch(s)
	return runHeadrace(ctx, s, w, consumer.QueueRoute[load.Posting]{
		Name: "post", Topic: s.Topic, Options: options(s),
		Queue: func(b *pgx.Batch, e event) error {
			w.begin(e)
			s.Done(1)
			if e.Data.Poison {
				// What nobody sees before the database does is the dearer failure.
				b.Queue(`update accounts set balance = balance / $1 where id = $2`, 0, e.Data.Account)
				return nil
			}
			b.Queue(updateAccount, e.Data.Amount, e.Data.Account)
			if e.Data.Hangs {
				b.Queue(`select pg_sleep(3600)`)
			}
			if e.Data.Fails {
				return fault.Transient(errNotNow)
			}
			if s.Options.Events != "" {
				return outbox.Queue(b, s.Options.Events, told(e))
			}
			return nil
		},
	})
}

// headraceBatch is a route that gets all fresh records of a group: one UPDATE of their sums, the same as franz-set's.
func headraceBatch(ctx context.Context, s *child.Session) error {
	w := newWatch(s)
	return runHeadrace(ctx, s, w, consumer.BatchRoute[load.Posting]{
		Name: "post", Topic: s.Topic, Options: options(s),
		Apply: func(ctx context.Context, tx pgx.Tx, es []event) error {
			items := make([]item, len(es))
			failed := fault.Members{}
			for i, e := range es {
				w.begin(e)
				items[i].Posting = e.Data
				if e.Data.Poison {
					failed[i] = fault.Permanent(errPoison)
				}
				if e.Data.Fails {
					failed[i] = fault.Transient(errNotNow)
				}
			}
			s.Done(len(es))
			if len(failed) > 0 {
				return failed
			}
			if err := tell(tx, s, es...); err != nil {
				return err
			}
			accounts, amounts := sums(items)
			if _, err := tx.Exec(ctx, updateSet, accounts, amounts); err != nil {
				return err
			}
			for _, e := range es {
				if err := unlucky(ctx, e.Data); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

// tell publishes an event a record, where that is asked for.
func tell(tx pgx.Tx, s *child.Session, es ...event) error {
	if s.Options.Events == "" {
		return nil
	}
	msgs := make([]*message.Message, len(es))
	for i, e := range es {
		msgs[i] = told(e)
	}
	return outbox.Publisher(tx).Publish(s.Options.Events, msgs...)
}

// told is about as large as the record that it tells of.
func told(e event) *message.Message {
	msg := message.NewMessage("posted-"+e.ID, []byte("{\"account\": 1234, \"amount\": 5, \"text\": \"about as much as the record itself said\"}"))
	kafka.SetKey(msg, e.Key)
	return msg
}

// Package outbox publishes events in the transaction of the effects that they tell of: they are sent if, and only if, it
// commits.
//
// In a handler, [Publisher] is a Watermill publisher on the handler's transaction:
//
//	Apply: func(ctx context.Context, tx pgx.Tx, e consumer.Event[OrderPlaced]) error {
//		if _, err := tx.Exec(ctx, `update accounts set …`); err != nil {
//			return err
//		}
//		msg := message.NewMessage(uuid.NewString(), payload)
//		kafka.SetKey(msg, []byte(e.Data.Account))
//		return outbox.Publisher(tx).Publish("ledger", msg)
//	},
//
// A route that queues has [Queue]. The events of all records of a group are one INSERT into headrace.outbox, right before
// COMMIT; those of a record that fails are undone with it.
//
// A [Forwarder] sends them, in the consumer (consumer.Config.Outbox) or alone ('headrace outbox run'):
//
//	read in order ─► send, acks from all in-sync replicas ─► delete what is confirmed ─► read …
//
// # What is promised
//
// Each event of a committed transaction is written at least once, and none of any other. An event's id, the message's
// UUID, is in its row: however often it is sent it is the same, so a Headrace route downstream has its effect once.
//
// First writes are in order by key: an event is not written before one of its key that was inserted before it in a
// transaction that had committed when its own inserted. Events of one route and one input key are; those of two routes, or of
// two input keys, only if their handlers wait for each other, say by a row that both update. After a crash a repeat may
// come behind a later event of its key.
//
// A topic that does not take an event stands still, in order, with a report, and the other topics go on. An event that no
// broker could ever take is refused by Publish ([ErrEvent]).
package outbox

package outbox

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/fault"
)

// errNoTx is a programmer's error.
var errNoTx = fault.Permanent(errors.New("outbox.Publisher was given no transaction: it publishes in that of a handler " +
	"(the tx of an Apply or a Batch, dedup.Tx(msg.Context()) in a Router of your own, or one of pool.Begin); " +
	"a route that queues uses outbox.Queue"))

// TxPublisher publishes in one transaction: its events are sent if, and only if, that commits. It is used like the
// transaction, by one goroutine and not after its end, and needs no Close.
type TxPublisher struct{ tx pgx.Tx }

var _ message.Publisher = TxPublisher{}

// Publisher publishes in tx. It works on any transaction; on that of a route's handler the events of all records of a
// group are one INSERT right before COMMIT, and what becomes of the record becomes of its events: undone, run again, left
// out, also where tx was begun by the handler as a savepoint.
func Publisher(tx pgx.Tx) TxPublisher { return TxPublisher{tx} }

// Publish notes an event for each message. UUID, metadata and kafka.SetKey become the record that a kafka.Publisher would
// write; a message without a UUID gets one. The id is in the row, so whoever consumes the topic knows a repeat by it.
//
// Nothing is published when the error is not nil. ErrEvent: a message could never be sent; fault.Permanent, like a use
// outside of a transaction. Any other is the database's.
func (p TxPublisher) Publish(topic string, msgs ...*message.Message) error {
	if p.tx == nil {
		return errNoTx
	}
	ds, err := newDrafts(topic, msgs)
	if err != nil || len(ds) == 0 {
		return err
	}
	_, err = p.tx.Exec(msgs[0].Context(), insertSQL, ds)
	return err
}

// Close does nothing: the transaction is its owner's.
func (p TxPublisher) Close() error { return nil }

// Queue is Publish for a handler that queues: with what else the record has in b it becomes durable, or not at all. It
// works on any pgx.Batch that is sent in a transaction.
func Queue(b *pgx.Batch, topic string, msgs ...*message.Message) error {
	ds, err := newDrafts(topic, msgs)
	if err != nil || len(ds) == 0 {
		return err
	}
	b.Queue(insertSQL, ds)
	return nil
}

package main

import (
	"encoding/json"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/internal/payments"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/outbox"
)

// charged is the event that tells others of a charged order.
type charged struct {
	Charge  uuid.UUID `json:"charge"`
	Order   string    `json:"order"`
	Account int       `json:"account"`
	Amount  int64     `json:"amount"`
}

// chargedTopic is where the events of a topic's orders go.
func chargedTopic(orders string) string { return orders + ".order-charged" }

// publish writes the event into the outbox, in the transaction that posts the order: it is sent if, and only if, that
// commits. The charge's id is the event's, so it is one event however often it is sent.
func publish(tx pgx.Tx, topic string, o order, c payments.Charge) error {
	payload, err := json.Marshal(charged{Charge: c.ID, Order: o.ID, Account: o.Account, Amount: o.Amount})
	if err != nil {
		return err
	}
	msg := message.NewMessage(c.ID.String(), payload)
	kafka.SetKey(msg, []byte(strconv.Itoa(o.Account)))
	return outbox.Publisher(tx).Publish(topic, msg)
}

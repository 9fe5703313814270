package peer

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/IBM/sarama"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/bench/internal/child"
	"github.com/headrace/headrace/bench/internal/load"
)

// plain is a plain transaction a record on franz-go: BEGIN, inbox row, UPDATE, COMMIT. Nothing commits sooner.
func plain(ctx context.Context, s *child.Session) error {
	return consume(ctx, s, func(ctx context.Context, conn *pgx.Conn, items []item) error {
		for _, it := range items {
			err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
				tag, err := tx.Exec(ctx, `insert into stock_inbox values ('post', $1) on conflict do nothing`, it.id)
				if err != nil || tag.RowsAffected() == 0 {
					return err
				}
				return post(ctx, tx, it.Posting)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// saramaPlain is Sarama bare: its consumer group, one goroutine a partition, a transaction a record, marks that it commits
// once a second. Settings: 1,024 messages buffered a partition (its default is 256).
func saramaPlain(ctx context.Context, s *child.Session) error {
	db, err := connect(ctx, s)
	if err != nil {
		return err
	}
	defer db.Close()
	cfg := saramaConfig()
	group, err := sarama.NewConsumerGroup(brokers(s), s.Group, cfg)
	if err != nil {
		return err
	}
	s.Ready()
	for ctx.Err() == nil {
		err := group.Consume(ctx, []string{s.Topic}, saramaHandler{s: s, db: db})
		if err != nil && ctx.Err() == nil {
			return errors.Join(err, group.Close())
		}
	}
	return group.Close()
}

func saramaConfig() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V3_6_0_0
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.ChannelBufferSize = 1024
	return cfg
}

type saramaHandler struct {
	s  *child.Session
	db *pgxpool.Pool
}

func (saramaHandler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (saramaHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h saramaHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-session.Context().Done():
			return nil
		case m, open := <-claim.Messages():
			if !open {
				return nil
			}
			if err := h.handle(session.Context(), m); err != nil {
				// Sarama ends the session then, and what is not marked comes again.
				return err
			}
			session.MarkMessage(m, "")
		}
	}
}

func (h saramaHandler) handle(ctx context.Context, m *sarama.ConsumerMessage) error {
	h.s.First()
	var p load.Posting
	if err := json.Unmarshal(m.Value, &p); err != nil {
		return err
	}
	var id uuid.UUID
	for _, header := range m.Headers {
		if string(header.Key) == load.IDHeader {
			var err error
			if id, err = uuid.ParseBytes(header.Value); err != nil {
				return err
			}
		}
	}
	if err := postOnce(ctx, h.db, id.String(), p); err != nil {
		return err
	}
	took(h.s, p)
	h.s.Done(1)
	return nil
}

package peer

import (
	"context"
	"sync"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/bench/internal/child"
)

// postgresRows and postgresSet are Postgres alone: the topic is in memory before the clock starts, and Options.Writers
// connections do nothing but full groups of Options.Poll records, each those of its own accounts.
func postgresRows(ctx context.Context, s *child.Session) error { return drive(ctx, s, rows) }
func postgresSet(ctx context.Context, s *child.Session) error  { return drive(ctx, s, set) }

func drive(ctx context.Context, s *child.Session, work group) error {
	shares := make([][]item, s.Options.Writers)
	if err := read(ctx, s, func(rs []*kgo.Record) error {
		items, err := decode(rs)
		for _, it := range items {
			n := it.Account % len(shares)
			shares[n] = append(shares[n], it)
		}
		return err
	}); err != nil || ctx.Err() != nil {
		return err
	}
	writers, err := dial(ctx, s.DSN, len(shares))
	if err != nil {
		return err
	}
	defer hangUp(context.WithoutCancel(ctx), writers)
	s.Ready()
	s.First()
	var all errgroup.Group
	for i, conn := range writers {
		all.Go(func() error {
			for left := shares[i]; len(left) > 0 && ctx.Err() == nil; {
				n := min(len(left), s.Options.Poll)
				// The driver sees the last COMMIT before its reply is here, and ends the run.
				if err := work(context.WithoutCancel(ctx), conn, left[:n]); err != nil {
					return err
				}
				left = left[n:]
				s.Done(n)
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func dial(ctx context.Context, dsn string, n int) (conns []*pgx.Conn, err error) {
	for range n {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			hangUp(context.WithoutCancel(ctx), conns)
			return nil, err
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

func hangUp(ctx context.Context, conns []*pgx.Conn) {
	for _, conn := range conns {
		_ = conn.Close(ctx) // there is nothing left to lose
	}
}

// read reads the whole topic, as fast as franz-go does that without a consumer group.
func read(ctx context.Context, s *child.Session, take func([]*kgo.Record) error) error {
	from := map[int32]kgo.Offset{}
	for p := range s.Partitions {
		from[p] = kgo.NewOffset().AtStart()
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers(s)...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.Topic: from}))
	if err != nil {
		return err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, s.Topic)
	if err != nil {
		return err
	}
	var left int64
	ends.Each(func(o kadm.ListedOffset) { left += o.Offset })
	for left > 0 {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		rs := fetches.Records()
		left -= int64(len(rs))
		if err := take(rs); err != nil {
			return err
		}
	}
	return nil
}

// readFranz is Kafka alone, read with franz-go.
func readFranz(ctx context.Context, s *child.Session) error {
	s.Ready()
	s.First()
	err := read(ctx, s, func(rs []*kgo.Record) error { s.Done(len(rs)); return nil })
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// readSarama is Kafka alone, read with Sarama.
func readSarama(ctx context.Context, s *child.Session) error {
	s.Ready()
	s.First()
	consumer, err := sarama.NewConsumer(brokers(s), saramaConfig())
	if err != nil {
		return err
	}
	defer func() { _ = consumer.Close() }() // nothing was written
	var all sync.WaitGroup
	defer all.Wait()
	for p := range s.Partitions {
		partition, err := consumer.ConsumePartition(s.Topic, p, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		all.Go(func() {
			for range partition.Messages() {
				s.Done(1)
			}
		})
		defer partition.AsyncClose()
	}
	<-ctx.Done()
	return nil
}

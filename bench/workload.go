package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// posting is the event of every bench: about 100 bytes of JSON, as the figures in the README were measured with.
type posting struct {
	Account int    `json:"account"`
	Amount  int64  `json:"amount"`
	Order   int    `json:"order,omitempty"` // what is charged, where a service is called
	Poison  bool   `json:"poison,omitempty"`
	Pad     string `json:"pad"`
}

const pad = "0123456789012345678901234567890123456789012345"

// workload is one topic full of postings, and what their effects must add up to.
type workload struct {
	topic      string
	records    int
	poison     int
	keys       int
	partitions int32
	balances   []int64  // by account, of the healthy records
	service    *service // called for each record; nil: none
}

// produce creates a topic of the given shape and fills it; every poisonEvery-th record can never succeed (0: none).
// Records carry Watermill's UUID header, without which the stock inbox would take every record for the same one.
func produce(ctx context.Context, brokers []string, w workload, poisonEvery int) (workload, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return w, err
	}
	defer cl.Close()
	w.topic = fmt.Sprintf("bench-%d-%d", w.partitions, time.Now().UnixNano())
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, w.partitions, 1, nil, w.topic); err != nil {
		return w, err
	}
	w.balances = make([]int64, w.keys)
	rnd := rand.New(rand.NewPCG(1, 2))
	var failed error
	for i := range w.records {
		p := posting{Account: rnd.IntN(w.keys), Amount: int64(1 + rnd.IntN(100)), Pad: pad}
		if w.service != nil {
			p.Order = i + 1
		}
		if p.Poison = poisonEvery > 0 && i%poisonEvery == poisonEvery/2; p.Poison {
			w.poison++
		} else {
			w.balances[p.Account] += p.Amount
		}
		cl.Produce(ctx, p.record(w.topic), func(_ *kgo.Record, err error) {
			if err != nil {
				failed = err
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return w, err
	}
	return w, failed
}

func (p posting) record(topic string) *kgo.Record {
	value, err := json.Marshal(p)
	if err != nil {
		panic(err) // two ints and a string
	}
	return &kgo.Record{
		Topic: topic, Key: []byte(strconv.Itoa(p.Account)), Value: value,
		Headers: []kgo.RecordHeader{{Key: "_watermill_message_uuid", Value: []byte(uuid.NewString())}},
	}
}

// reset empties what a run writes, and gives every account its row.
func reset(ctx context.Context, db *pgxpool.Pool, keys int) error {
	_, err := db.Exec(ctx, `
		create table if not exists accounts (id int primary key, balance bigint not null) with (fillfactor = 50);
		create table if not exists stock_inbox (consumer text, message_id uuid, primary key (consumer, message_id));
		truncate accounts, stock_inbox;`)
	if err != nil {
		return err
	}
	if _, err := db.Exec(ctx, `insert into accounts select g, 0 from generate_series(0, $1 - 1) g`, keys); err != nil {
		return err
	}
	_, err = db.Exec(ctx, `vacuum analyze accounts`)
	return err
}

// verify says whether the accounts hold exactly what the topic adds up to, and the inbox a row for each healthy record.
func verify(ctx context.Context, db *pgxpool.Pool, w workload, inboxRows string) error {
	rows, err := db.Query(ctx, `select id, balance from accounts`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id int
		var balance int64
		if err := rows.Scan(&id, &balance); err != nil {
			return err
		}
		if balance != w.balances[id] {
			return fmt.Errorf("account %d has %d, its records add up to %d", id, balance, w.balances[id])
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	var n int
	if err := db.QueryRow(ctx, inboxRows).Scan(&n); err != nil {
		return err
	}
	if want := w.records - w.poison; n != want {
		return fmt.Errorf("the inbox has %d rows of %d healthy records", n, want)
	}
	return nil
}

package consumer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// A canary is in every key, value, header and id of these tests, and in what the failures say. card is one that is a number.
const (
	canary = "c4n4ry"
	card   = "4111111111111111"
)

// leaky are the ways in which a handler's failure names what it was given.
var leaky = map[string]func(ctx context.Context, tx pgx.Tx, e Event[item]) error{
	"the database quotes it": func(ctx context.Context, tx pgx.Tx, e Event[item]) error {
		_, err := tx.Exec(ctx, `select $1::text::uuid`, e.Data.ID)
		return err
	},
	"the database quotes a number": func(ctx context.Context, tx pgx.Tx, _ Event[item]) error {
		_, err := tx.Exec(ctx, `select $1::text::int`, card)
		return err
	},
	"the database names the row": func(ctx context.Context, tx pgx.Tx, e Event[item]) error {
		_, err := tx.Exec(ctx, `create temp table once (id text primary key) on commit drop`)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `insert into once values ($1), ($1)`, e.Data.ID)
		if server := (*pgconn.PgError)(nil); errors.As(err, &server) {
			return fmt.Errorf("%w: %s", err, server.Detail)
		}
		return err
	},
	"a number cannot be read": func(_ context.Context, _ pgx.Tx, e Event[item]) error {
		_, err := strconv.Atoi(e.Data.ID)
		return fmt.Errorf("amount: %w", err)
	},
	"a time cannot be read": func(_ context.Context, _ pgx.Tx, e Event[item]) error {
		_, err := time.Parse(time.RFC3339, e.Data.ID)
		return err
	},
	"a duration cannot be read": func(_ context.Context, _ pgx.Tx, e Event[item]) error {
		_, err := time.ParseDuration(e.Data.ID)
		return err
	},
	"a URL's query": func(_ context.Context, _ pgx.Tx, e Event[item]) error {
		return &url.Error{Op: "Get", URL: "http://payments/charge?id=" + e.Data.ID + "&card=" + card, Err: errors.New("EOF")}
	},
	"the handler names the record": func(_ context.Context, _ pgx.Tx, e Event[item]) error {
		header, _ := e.Header("x-header")
		return fmt.Errorf("%s of %q (%s): cannot read %s", e.Key, header, e.ID, must(json.Marshal(e.Data)))
	},
	"the handler quotes the record": func(_ context.Context, _ pgx.Tx, e Event[item]) error {
		return fmt.Errorf("cannot read %q", must(json.Marshal(e.Data)))
	},
	"the handler panics with it": func(_ context.Context, _ pgx.Tx, e Event[item]) error {
		panic("cannot do " + string(e.Key))
	},
	"it is parked": func(_ context.Context, _ pgx.Tx, e Event[item]) error {
		return fault.Transient(fmt.Errorf("partner does not answer for %s", e.Key))
	},
}

func must(value []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return value
}

// heard is a log of everything, down to what the router tells of each message.
type heard struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.buf.Write(p)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.buf.String()
}

func (h *heard) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(h, &slog.HandlerOptions{Level: watermill.LevelTrace}))
}

// leakyRecords are a record of each leaky kind, one whose payload cannot be decoded, and one whose identity cannot be read.
func leakyRecords() (rs []*kgo.Record) {
	for kind := range leaky {
		n := strconv.Itoa(len(rs))
		r := keyed(canary+"-key-"+n, item{ID: canary + "-id-" + n, Kind: kind})
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "x-header", Value: []byte(canary + "-header-" + n)})
		rs = append(rs, r)
	}
	bad := keyed(canary+"-key-bad", item{ID: canary + "-id-bad"})
	bad.Value = []byte(`{"ID": ` + card + `, "Kind": "` + canary + `"}`)
	worse := keyed(canary+"-key-worse", item{ID: canary + "-id-worse"})
	worse.Value = []byte(canary + `, no JSON at all`)
	return append(rs, bad, worse)
}

func leakyRoute() Route[item] {
	return Route[item]{
		Name: "post", Topic: "orders", Options: Options{Attempts: 2, BackoffBase: time.Millisecond, Park: &parking.Policy{Base: time.Millisecond, Cap: time.Millisecond, Rounds: 1}},
		Apply: func(ctx context.Context, tx pgx.Tx, e Event[item]) error { return leaky[e.Data.Kind](ctx, tx, e) },
	}
}

// kept are the texts that are made of errors: in letters, and in the inbox.
func (b *bed) kept() (texts []string) {
	b.t.Helper()
	for _, r := range kafkatest.ReadAll(b.t, b.brokers, "orders.dlq") {
		for _, h := range r.Headers {
			switch strings.TrimPrefix(h.Key, dlq.Prefix) {
			case "error-message", "error-type", "stack", "history", "class", "reason", "fingerprint":
				texts = append(texts, string(h.Value))
			}
		}
	}
	rows, err := b.pool.Query(b.t.Context(), `select reason || error from headrace.inbox where error is not null`)
	require.NoError(b.t, err)
	errs, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	return append(texts, errs...)
}

func TestCanary_WhatARecordHoldsIsInNoLogNoMetricAndNoErrorText(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var log heard
	var reports []error
	var mu sync.Mutex
	cfg := b.config()
	cfg.Logger = log.logger()
	cfg.Hooks.OnReport = func(r record.Report) {
		mu.Lock()
		defer mu.Unlock()
		reports = append(reports, r.Err, errors.New(r.Hint))
	}
	cfg.Hooks.OnDeadLetter = func(i record.DeadLetterInfo) {
		mu.Lock()
		defer mu.Unlock()
		reports = append(reports, errors.New(i.Message))
	}
	rs := leakyRecords()
	r := b.start(cfg, leakyRoute())
	b.produce(rs...)
	got := map[record.Outcome]int{}
	for got[record.Dead] < len(rs) {
		for o, n := range b.outcomes(1) {
			got[o] += n
		}
	}
	metrics := scrape(t, r.c.cfg.Registry)
	_, ready := r.ask("/readyz")
	r.stop()

	require.Equal(t, len(rs), got[record.Dead])
	require.Positive(t, got[record.Parked])
	texts := b.kept()
	require.GreaterOrEqual(t, len(texts), 5*len(rs), "each letter says why, and so does each row")
	mu.Lock()
	defer mu.Unlock()
	require.NotEmpty(t, reports)
	texts = append(texts, metrics, ready)
	for _, err := range reports {
		texts = append(texts, fmt.Sprint(err))
	}
	require.Contains(t, log.String(), "record is dead", "the log tells everything")
	for _, text := range append(texts, strings.Split(log.String(), "\n")...) {
		require.NotContains(t, text, canary)
		require.NotContains(t, text, card)
	}
}

func TestRedactError_GivesTheTextThatIsKept(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var log heard
	cfg := b.config()
	cfg.Logger = log.logger()
	cfg.RedactError = func(err error) string {
		if errors.As(err, new(*fault.PanicError)) {
			panic("it was not expected")
		}
		return fmt.Sprintf("an error of %d bytes, password=hunter2", len(err.Error()))
	}
	rs := leakyRecords()
	r := b.start(cfg, leakyRoute())
	b.produce(rs...)
	for dead := 0; dead < len(rs); {
		dead += b.outcomes(1)[record.Dead]
	}
	r.stop()
	require.Len(t, kafkatest.ReadAll(t, b.brokers, "orders.dlq"), len(rs))
	told := 0
	for _, text := range b.kept() {
		require.NotContains(t, text, canary)
		if strings.Contains(text, "an error of ") {
			told++
			require.Contains(t, text, "password=***", "what it gives is looked at as well")
		}
	}
	require.GreaterOrEqual(t, told, 2*(len(rs)-1), "letter and row of all but the panic")
	require.Contains(t, log.String(), "an error of ")
	require.NotContains(t, log.String(), "hunter2")
	require.NotContains(t, log.String(), canary)
}

package compose

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
)

// TestTheTestOfOnesOwn runs the one that docs/local.md shows: on the real broker and a database instead of the stack's.
func TestTheTestOfOnesOwn(t *testing.T) {
	page, err := os.ReadFile("../../docs/local.md")
	require.NoError(t, err)
	source, err := os.ReadFile("yours_test.go")
	require.NoError(t, err)
	shown := strings.ReplaceAll(cut(string(page), "```go\n", "```"), "func TestOrderIsPostedOnce(", "func orderIsPostedOnce(")
	require.NotEmpty(t, shown)
	require.Contains(t, string(source), shown)

	t.Setenv("HEADRACE_BROKERS", strings.Join(kafkatest.Real(t).Brokers(), ","))
	t.Setenv("DATABASE_URL", pgtest.DSN(t))
	orderIsPostedOnce(t)
}

type order struct {
	Amount int64 `json:"amount"`
}

func orderIsPostedOnce(t *testing.T) {
	brokers := os.Getenv("HEADRACE_BROKERS") // localhost:9092
	if brokers == "" {
		t.Skip("make up, and set HEADRACE_BROKERS and DATABASE_URL")
	}
	seeds, name := strings.Split(brokers, ","), "orders-"+uuid.NewString() // others use the stack too
	pool, err := pgxpool.New(t.Context(), os.Getenv("DATABASE_URL"))
	require.NoError(t, err)
	defer pool.Close()
	_, err = pool.Exec(t.Context(), `create table if not exists posted (topic text, amount bigint)`)
	require.NoError(t, err)

	client, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic(name))
	require.NoError(t, err)
	defer client.Close()
	_, err = kadm.NewClient(client).CreateTopic(t.Context(), 2, 1, nil, name)
	require.NoError(t, err)
	once := &kgo.Record{Key: []byte("a"), Value: []byte(`{"amount": 7}`), Headers: []kgo.RecordHeader{
		{Key: "_watermill_message_uuid", Value: []byte(uuid.NewString())},
	}}
	again, last := *once, kgo.Record{Key: once.Key, Value: []byte(`{"amount": 1}`)}
	require.NoError(t, client.ProduceSync(t.Context(), once, &again, &last).FirstErr())

	c, err := consumer.New(
		consumer.Config{Brokers: seeds, Group: name, DB: pool, Migrate: true, CreateDeadLetterTopics: true},
		consumer.Route[order]{Name: name, Topic: name, Apply: func(ctx context.Context, tx pgx.Tx, e consumer.Event[order]) error {
			_, err := tx.Exec(ctx, `insert into posted values ($1, $2)`, e.Topic, e.Data.Amount)
			return err
		}},
	)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()

	require.Eventually(t, func() bool {
		var sum int64 // 8, and 15 if an order counted twice: a key's records run in their order
		err := pool.QueryRow(ctx, `select coalesce(sum(amount), 0) from posted where topic = $1`, name).Scan(&sum)
		return err == nil && sum == 8
	}, time.Minute, 50*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}

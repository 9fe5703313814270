package consumer

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/sasl"
	"go.opentelemetry.io/otel/trace"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/outbox"
	"github.com/headrace/headrace/record"
)

// Config is what the routes of one consumer share. Brokers, Group and DB are required; the zero value of everything
// else is a default that fits together. It may be copied.
type Config struct {
	// Brokers are the addresses to begin with, host:port. Required.
	Brokers []string
	// Group is the Kafka consumer group. The inbox remembers by it: another name processes everything again. Required.
	Group string
	// DB is the database that the handlers write to. Its configuration is taken to open a pool for the transactions, of at
	// most 2 x Writers + 4 connections, and one of at most 4 if a route parks; DB itself is used for the checks at start and
	// by Outbox, and stays open when the consumer is done. Required.
	DB *pgxpool.Pool

	// TLS is used for every connection to a broker.
	//
	// Defaults to nil: no TLS.
	TLS *tls.Config
	// SASL authenticates every connection to a broker. kafka.Security makes both of files and environment variables.
	//
	// Defaults to nil: no authentication.
	SASL sasl.Mechanism
	// ClientID is by what brokers know this process in their logs, metrics and quotas.
	//
	// Defaults to "headrace".
	ClientID string
	// Dial opens a connection to a broker. For proxies and tests.
	//
	// Defaults to a net.Dialer with a timeout of 10 s.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// Migrate applies the inbox's schema at start, under a lock, so that any number of processes may start at once.
	//
	// Defaults to false: a schema that is missing, or of another version than this build's, is refused.
	Migrate bool
	// CreateDeadLetterTopics creates missing dead letter topics and replay topics at start, with the source topic's
	// partitions. A source topic's replay topic is "<topic>.<group>.replay": what is replayed goes there, and only this
	// consumer group reads it.
	//
	// Defaults to false: a missing one is refused.
	CreateDeadLetterTopics bool
	// InboxRetention is how long the inbox remembers a record. It must be no shorter than what a topic keeps, nor than
	// what its dead letter topic and, after a replay, its replay topic keep together: a record that can still be delivered
	// must still be known.
	//
	// kafka.Forever never forgets. Defaults to the longest of these plus a day, or for ever if one of the topics keeps its
	// records so.
	InboxRetention time.Duration

	// Balancer is how partitions move between members. All members of a group must agree on one. Package kafka/stock is always
	// eager.
	//
	// Defaults to kafka.Cooperative: only partitions that move are given up.
	Balancer kafka.Balancer
	// InstanceID is this process's own name in the group, the same at each start, as a StatefulSet's pods have one: a restart within
	// SessionTimeout then moves no partition. A process that stops for good, or for longer, keeps its partitions idle for
	// SessionTimeout. No two processes may have the same one: see kafka.SourceConfig. Package kafka/stock does not heed it.
	//
	// Defaults to none: a process that stops leaves, and the others take its partitions at once.
	InstanceID string
	// OnOffsetLoss is what becomes of a partition whose next record is not in its log any more: retention has cut it off, the
	// log was cut, or the topic was deleted and created again. kafka.LossOldest goes on with the oldest record that is there,
	// kafka.LossNewest with what comes next. Either way the loss is reported with its numbers. What a route with the offset
	// store remembers of a log that was cut is held whatever this says.
	//
	// Defaults to kafka.LossHold: the partition is held, and readiness says so, until somebody decides.
	OnOffsetLoss kafka.OffsetLoss
	// SessionTimeout is after what silence of this process its partitions go to others. The brokers have bounds of their
	// own, 6 s and 30 min as a rule; of a kafka.ServerSide group they decide it.
	//
	// Defaults to 45 s.
	SessionTimeout time.Duration
	// HeartbeatInterval is how soon this process hears of a rebalance. At least 10 ms, at most a third of SessionTimeout.
	//
	// Defaults to 1 s.
	HeartbeatInterval time.Duration
	// RebalanceTimeout is how long the others wait for this process once a rebalance began. DrainGrace, HardGrace,
	// CommitReserve, a heartbeat and a second must fit in it.
	//
	// Defaults to 60 s.
	RebalanceTimeout time.Duration
	// MaxPollInterval bounds a record's budget, and drives the watchdog: a handler that runs for so long turns
	// liveness red, ends the membership and lets Run return an error. Holds do not count.
	//
	// Defaults to 5 min.
	MaxPollInterval time.Duration
	// DrainGrace is how long what is in flight may take to finish when a partition is revoked or the process stops.
	//
	// Defaults to 10 s.
	DrainGrace time.Duration
	// HardGrace is how long a handler may ignore the end of its context before its connection is closed.
	//
	// Defaults to 5 s.
	HardGrace time.Duration
	// CommitInterval is how often offsets are committed. At least 10 ms.
	//
	// Defaults to 1 s.
	CommitInterval time.Duration
	// CommitReserve is the time that is kept for making outcomes durable: of a record's budget for its transaction's
	// COMMIT, of a rebalance for the commit of the offsets.
	//
	// Defaults to 5 s.
	CommitReserve time.Duration
	// DeadLetterTimeout is how long one dead letter may take to be confirmed by all in-sync replicas. After it the
	// record is held, and the write is tried again. At least 1 s.
	//
	// Defaults to 10 s.
	DeadLetterTimeout time.Duration
	// MaxHold is the longest that a Retry-After is believed.
	//
	// Defaults to 15 min.
	MaxHold time.Duration

	// MaxBatchTime is how long one group transaction may last before it is cut and committed.
	//
	// Defaults to 200 ms.
	MaxBatchTime time.Duration
	// Writers is how many group transactions a route has side by side. All routes share a pool of at most 2 x Writers + 4
	// connections.
	//
	// Defaults to 4.
	Writers int
	// MaxInFlight is how many records of a partition may be fetched and not settled; above it the partition is paused. It
	// bounds how many records may wait behind keys that fail before the others have to wait for them too. At least the
	// largest MaxBatch.
	//
	// Defaults to 20 x the largest MaxBatch of the topic's routes.
	MaxInFlight int
	// MaxInFlightBytes is the memory for what is fetched from the committed offsets on, settled or not, of the process; each
	// partition has an equal share. One fetch of each partition may exceed it.
	//
	// Defaults to 32 MiB, with which a process that drains a backlog takes 180 to 250 MB; half of it costs a batch route a tenth of its rate.
	MaxInFlightBytes int64

	// Outbox, if not nil, has this process send what routes publish with outbox.Publisher and outbox.Queue. Its Client and
	// Hooks are this Config's. It uses connections of DB, up to three. Any number of processes may do so, of which one sends
	// at a time; 'headrace outbox run' is a process that does nothing else.
	//
	// Defaults to nil: what is published waits in the database.
	Outbox *outbox.Config

	// Transport makes what delivers the records. Package kafka/stock has one under watermill-kafka's own Subscriber, for
	// whoever must keep that.
	//
	// Defaults to kafka.NewSource.
	Transport func(kafka.SourceConfig) (kafka.Transport, error)

	// Dependencies are further ones that the process calls, beside those of its CallRoutes: their calls, breakers, further
	// tries and substitutes are in the metrics, and their reports in the log.
	//
	// Defaults to none.
	Dependencies []*downstream.Dependency

	// Registry is where the metrics are registered, and what Handler serves at /metrics.
	//
	// Defaults to a registry of the consumer's own.
	Registry *prometheus.Registry
	// Hooks are called beside the consumer's own metrics and logs.
	//
	// Defaults to none.
	Hooks *record.Hooks
	// RedactError gives the text of an error where it is kept or shown: in dead letters, the inbox's dead rows, what is
	// parked, reports and the log. Whatever it says, what looks like a secret, what follows a URL's "?", values that
	// decoders and databases quote, and the record's own key, id, header values and value are replaced in it, and at most
	// 4 KiB are kept. It must be quick, safe for concurrent use, and say the same of the same error; of one that it panics
	// of only the type is told.
	//
	// Defaults to nil: the text is err.Error(), which is what a handler wrote.
	RedactError func(err error) string
	// Tracer makes a span a record and one an attempt.
	//
	// Defaults to nil: no spans.
	Tracer trace.Tracer
	// Logger gets everything that is logged.
	//
	// Defaults to slog.Default().
	Logger *slog.Logger
}

// client is the part that everything speaking Kafka shares.
func (c Config) client() kafka.ClientConfig {
	return kafka.ClientConfig{
		Brokers: c.Brokers, TLS: c.TLS, SASL: c.SASL, ClientID: c.ClientID, Dial: c.Dial, Logger: c.Logger,
	}
}

func (c Config) rebalance() rebalance {
	return rebalance{
		drainGrace: c.DrainGrace, hardGrace: c.HardGrace, commit: c.CommitReserve,
		heartbeat: c.HeartbeatInterval, reserve: rebalanceReserve, timeout: c.RebalanceTimeout,
	}
}

func (c Config) dependencyProblems() []Problem {
	var ps []Problem
	for i, d := range c.Dependencies {
		if !made(d) {
			ps = append(ps, Problem{
				What: fmt.Sprintf("Dependencies[%d] was not made with downstream.New", i), Fix: "make it so, or leave it out",
			})
		}
	}
	return ps
}

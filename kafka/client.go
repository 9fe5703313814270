package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/headrace/headrace/internal/redact"
)

// ErrNoBrokers reports a ClientConfig without an address to begin with. Match with errors.Is.
var ErrNoBrokers = errors.New("no brokers: ClientConfig.Brokers needs at least one host:port")

const (
	defaultClientID = "headrace"
	metadataMaxAge  = time.Minute
	dialTimeout     = 10 * time.Second
)

// ClientConfig says how to reach the cluster. It is given once and used by everything that speaks Kafka: Source,
// Publisher, Admin and the dead letter writer, each with connections of its own. It may be copied.
type ClientConfig struct {
	// Brokers are the addresses to begin with, host:port. The others are learned from them. Required.
	Brokers []string
	// TLS is used for every connection; ServerName is taken from the broker's address if it is empty.
	//
	// Defaults to nil: no TLS.
	TLS *tls.Config
	// SASL authenticates every connection, for example scram.Auth{User: …, Pass: …}.AsSha512Mechanism(). [Security] makes both
	// of files and environment variables.
	//
	// Defaults to nil: no authentication.
	SASL sasl.Mechanism
	// ClientID is by what brokers know the client in their logs, metrics and quotas.
	//
	// Defaults to "headrace".
	ClientID string
	// Dial opens a connection to a broker; TLS is put on top of it. For proxies and tests.
	//
	// Defaults to a net.Dialer with a timeout of 10 s.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Logger gets what the client warns of; what it only tells is logged at debug level.
	//
	// Defaults to slog.Default().
	Logger *slog.Logger
}

// Validate says what is missing.
func (c ClientConfig) Validate() error {
	if len(c.Brokers) == 0 {
		return ErrNoBrokers
	}
	return nil
}

// Options are what every client of this configuration has in common. Metadata is at most a minute old, so that added
// partitions and moved leaders are seen soon (the client's own default is five).
func (c ClientConfig) Options() []kgo.Opt {
	c = c.withDefaults()
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.SoftwareNameAndVersion("headrace", "v1"),
		kgo.MetadataMaxAge(metadataMaxAge),
		kgo.Dialer(c.dialer()),
		kgo.WithLogger(&clientLogger{log: c.Logger}),
	}
	if c.SASL != nil {
		opts = append(opts, kgo.SASL(c.SASL))
	}
	return opts
}

func (c ClientConfig) withDefaults() ClientConfig {
	if c.ClientID == "" {
		c.ClientID = defaultClientID
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// dialer puts TLS on top of Dial ourselves: the client takes a dialer or a TLS configuration, never both.
func (c ClientConfig) dialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	if c.TLS == nil {
		return c.Dial
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := c.Dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return handshake(ctx, conn, c.tlsFor(addr))
	}
}

// tlsFor is the configuration for one broker, whose certificate is for the host that it advertises.
func (c ClientConfig) tlsFor(addr string) *tls.Config {
	cfg := c.TLS.Clone()
	if host, _, err := net.SplitHostPort(addr); err == nil && cfg.ServerName == "" {
		cfg.ServerName = host
	}
	return cfg
}

func handshake(ctx context.Context, conn net.Conn, cfg *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secure, nil
}

// clientLogger hands the client's log on, one level lower: its "info" is a line for every connection and metadata
// change, which an application's log does not want.
//
// While a broker is away the client says so ten times a second. A line of one kind is told once a minute, the others go to
// level debug; what an operator must know is a report of its own.
type clientLogger struct {
	log *slog.Logger

	mu   sync.Mutex
	told map[string]time.Time
}

// tellInterval is between two lines of one kind.
const tellInterval = time.Minute

var _ kgo.Logger = (*clientLogger)(nil)

// Level implements kgo.Logger.
func (l *clientLogger) Level() kgo.LogLevel {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelWarn
}

// Log implements kgo.Logger.
func (l *clientLogger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	to := slogLevel(level)
	if to > slog.LevelDebug && !l.due(msg, time.Now()) {
		to = slog.LevelDebug
	}
	for i, v := range keyvals {
		if err, ok := v.(error); ok {
			keyvals[i] = redact.Of(err, nil) // it may be of a user's, who gives a token or dials
		}
	}
	l.log.Log(context.Background(), to, "kafka client: "+msg, keyvals...)
}

// due says whether a line of this kind may be told at now. The client's messages are constants, so there are few kinds.
func (l *clientLogger) due(msg string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.told[msg]; ok && now.Sub(last) < tellInterval {
		return false
	}
	if l.told == nil {
		l.told = make(map[string]time.Time)
	}
	l.told[msg] = now
	return true
}

func slogLevel(level kgo.LogLevel) slog.Level {
	switch level {
	case kgo.LogLevelError:
		return slog.LevelError
	case kgo.LogLevelWarn:
		return slog.LevelWarn
	case kgo.LogLevelNone, kgo.LogLevelInfo, kgo.LogLevelDebug:
		return slog.LevelDebug
	}
	return slog.LevelDebug
}

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/headrace/headrace/kafka"
)

// The environment variables that stand in for flags.
const (
	envBrokers  = "HEADRACE_BROKERS"
	envBrokers2 = "KAFKA_BROKERS"          // what many set already
	envPassword = "HEADRACE_SASL_PASSWORD" //nolint:gosec // the variable's name
)

// reachWithin bounds the first contact with a server: somebody waits for the answer.
const reachWithin = 10 * time.Second

// kafkaFlags say how to reach the cluster.
type kafkaFlags struct {
	brokers      []string
	tls          bool
	mechanism    string
	user         string
	passwordFile string
	verbose      bool
}

func (f *kafkaFlags) register(fs *pflag.FlagSet) {
	fs.StringSliceVarP(&f.brokers, "brokers", "b", nil, "brokers to begin with, `host:port`, comma separated (env "+envBrokers+", else "+envBrokers2+")")
	fs.BoolVar(&f.tls, "tls", false, "speak TLS, with the system's roots (SSL_CERT_FILE names others)")
	fs.StringVar(&f.mechanism, "sasl-mechanism", "", "log in by this `mechanism`: plain, scram-sha-256 or scram-sha-512")
	fs.StringVar(&f.user, "sasl-user", "", "`user` to log in as; the password is read from env "+envPassword+" or from a file")
	fs.StringVar(&f.passwordFile, "sasl-password-file", "", "`file` with the password")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "tell what the Kafka client does")
}

// config is what the flags and the environment say; reach tries it.
func (f *kafkaFlags) config(s streams) (kafka.ClientConfig, error) {
	brokers, err := f.addresses(s)
	if err != nil {
		return kafka.ClientConfig{}, err
	}
	mechanism, err := f.sasl(s)
	if err != nil {
		return kafka.ClientConfig{}, err
	}
	cfg := kafka.ClientConfig{Brokers: brokers, SASL: mechanism, ClientID: "headrace-cli", Logger: f.logger(s.err)}
	if f.tls {
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return cfg, nil
}

func (f *kafkaFlags) logger(w io.Writer) *slog.Logger {
	if !f.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (f *kafkaFlags) addresses(s streams) ([]string, error) {
	from, list := "--brokers", f.brokers
	for _, name := range []string{envBrokers, envBrokers2} {
		if len(list) == 0 {
			from, list = name, strings.Split(s.getenv(name), ",")
		}
		list = nonEmpty(list)
	}
	if len(list) == 0 {
		return nil, usagef("no brokers").fix("add --brokers host:port, or set " + envBrokers)
	}
	for _, address := range list {
		if strings.Contains(address, "/") {
			return nil, usagef("%s: %q is no host:port", from, address).fix("leave out the scheme and the path, as in kafka-1:9092")
		}
	}
	return list, nil
}

func nonEmpty(list []string) []string {
	var full []string
	for _, s := range list {
		if s = strings.TrimSpace(s); s != "" {
			full = append(full, s)
		}
	}
	return full
}

// sasl is how to log in, nil for not at all.
func (f *kafkaFlags) sasl(s streams) (sasl.Mechanism, error) {
	if f.mechanism == "" {
		if f.user != "" || f.passwordFile != "" {
			return nil, usagef("--sasl-user or --sasl-password-file without --sasl-mechanism").
				fix("add --sasl-mechanism plain, scram-sha-256 or scram-sha-512")
		}
		return nil, nil //nolint:nilnil // no mechanism is what kafka.ClientConfig calls no login
	}
	mechanism := strings.ToLower(f.mechanism)
	if !slices.Contains(mechanisms, mechanism) {
		return nil, usagef("--sasl-mechanism %q is not known", f.mechanism).fix("use plain, scram-sha-256 or scram-sha-512")
	}
	if f.user == "" {
		return nil, usagef("--sasl-mechanism %s without a user", f.mechanism).fix("add --sasl-user")
	}
	password, err := f.password(s)
	if err != nil {
		return nil, err
	}
	switch auth := (scram.Auth{User: f.user, Pass: password}); mechanism {
	case scramSHA256:
		return auth.AsSha256Mechanism(), nil
	case scramSHA512:
		return auth.AsSha512Mechanism(), nil
	}
	return plain.Auth{User: f.user, Pass: password}.AsMechanism(), nil
}

// The mechanisms, as they are written in --sasl-mechanism.
const (
	saslPlain   = "plain"
	scramSHA256 = "scram-sha-256"
	scramSHA512 = "scram-sha-512"
)

var mechanisms = []string{saslPlain, scramSHA256, scramSHA512}

// password is never a flag's value: everybody on the machine can read a process' command line.
func (f *kafkaFlags) password(s streams) (string, error) {
	if f.passwordFile == "" {
		if password := s.getenv(envPassword); password != "" {
			return password, nil
		}
		return "", usagef("no password for --sasl-user %s", f.user).fix("set " + envPassword + ", or add --sasl-password-file")
	}
	data, err := os.ReadFile(f.passwordFile)
	if err != nil {
		return "", usagef("--sasl-password-file: %w", err).fix("name a file that this user can read, or set " + envPassword)
	}
	return strings.TrimRight(string(data), "\r\n"), nil
}

// reach asks one broker anything: a wrong address is told at once, and not after the client's minutes of retries.
func reach(ctx context.Context, cfg kafka.ClientConfig) error {
	client, err := kgo.NewClient(cfg.Options()...)
	if err != nil {
		return usagef("--brokers %s: %w", strings.Join(cfg.Brokers, ","), err).fix("write host:port, as in kafka-1:9092")
	}
	defer client.Close()
	within, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	if err := client.Ping(within); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &failure{
			err:  fmt.Errorf("no broker of %s answers: %w", strings.Join(cfg.Brokers, ","), err),
			hint: brokerHint(cfg, err),
		}
	}
	return nil
}

func brokerHint(cfg kafka.ClientConfig, err error) string {
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return "check --sasl-user, the password and --sasl-mechanism"
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return "the brokers' certificate is of an authority that is not trusted here: name its file in SSL_CERT_FILE"
	case errors.As(err, new(tls.RecordHeaderError)):
		return "the brokers do not speak TLS at this port: leave out --tls, or name their TLS port"
	case cfg.SASL != nil: // some brokers hang up without a word
		return "check --brokers, --sasl-user, the password and --sasl-mechanism; if the brokers want TLS, add --tls"
	case cfg.TLS == nil:
		return "check --brokers; if the brokers want TLS or a login, add --tls and --sasl-mechanism"
	}
	return "check --brokers; if the brokers want a login, add --sasl-mechanism"
}

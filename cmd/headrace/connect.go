package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/headrace/headrace/internal/hint"
	"github.com/headrace/headrace/kafka"
)

// The environment variables that stand in for flags.
const (
	envBrokers   = "HEADRACE_BROKERS"
	envBrokers2  = "KAFKA_BROKERS"          // what many set already
	envPassword  = "HEADRACE_SASL_PASSWORD" //nolint:gosec // the variable's name
	envPassword2 = "KAFKA_SASL_PASSWORD"
)

// reachWithin bounds the first contact with a server: somebody waits for the answer.
const reachWithin = 10 * time.Second

// kafkaFlags say how to reach the cluster.
type kafkaFlags struct {
	brokers  []string
	security kafka.Security
	verbose  bool
}

func (f *kafkaFlags) register(fs *pflag.FlagSet) {
	s := &f.security
	fs.StringSliceVarP(&f.brokers, "brokers", "b", nil, "brokers to begin with, `host:port`, comma separated (env "+envBrokers+", else "+envBrokers2+")")
	fs.BoolVar(&s.TLS, "tls", false, "speak TLS (env KAFKA_SECURITY_PROTOCOL)")
	fs.StringVar(&s.CAFile, "tls-ca-file", "", "believe the certificates of this `file`, in place of the system's (env KAFKA_SSL_CA_LOCATION)")
	fs.StringVar(&s.CertFile, "tls-cert-file", "", "`file` with this client's certificate (env KAFKA_SSL_CERTIFICATE_LOCATION)")
	fs.StringVar(&s.KeyFile, "tls-key-file", "", "`file` with its key (env KAFKA_SSL_KEY_LOCATION)")
	fs.StringVar(&s.Mechanism, "sasl-mechanism", "", "log in by this `mechanism`: plain, scram-sha-256, scram-sha-512 or oauthbearer (env KAFKA_SASL_MECHANISM)")
	fs.StringVar(&s.User, "sasl-user", "", "`user` to log in as (env KAFKA_SASL_USERNAME); the password is read from env "+envPassword+", else "+envPassword2+", or from a file")
	fs.StringVar(&s.PasswordFile, "sasl-password-file", "", "`file` with the password, or with the token of oauthbearer")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "tell what the Kafka client does")
}

// config is what the flags and the environment say; reach tries it.
func (f *kafkaFlags) config(s streams) (kafka.ClientConfig, error) {
	brokers, err := f.addresses(s)
	if err != nil {
		return kafka.ClientConfig{}, err
	}
	security, err := f.merged(s)
	if err != nil {
		return kafka.ClientConfig{}, err
	}
	cfg := kafka.ClientConfig{Brokers: brokers, ClientID: clientName, Logger: f.logger(s.err)}
	cfg.TLS, cfg.SASL, err = security.Resolve()
	return cfg, misused(err)
}

// merged is what the flags say, and the environment where they say nothing. A password in the environment is that of the
// user whom the flags name.
func (f *kafkaFlags) merged(s streams) (kafka.Security, error) {
	m := f.security
	env, err := kafka.SecurityFromEnv(func(name string) string {
		if name == "HEADRACE_SASL_MECHANISM" && m.Mechanism != "" {
			return m.Mechanism
		}
		return s.getenv(name)
	})
	if err != nil {
		return kafka.Security{}, misused(err)
	}
	or := func(to *string, from string) {
		if *to == "" {
			*to = from
		}
	}
	or(&m.CAFile, env.CAFile)
	if m.CertFile == "" && m.KeyFile == "" {
		m.CertFile, m.KeyFile = env.CertFile, env.KeyFile
	}
	m.TLS = m.TLS || env.TLS
	or(&m.Mechanism, env.Mechanism)
	if m.Mechanism == "" {
		if m.User != "" || m.PasswordFile != "" {
			return m, usagef("--sasl-user or --sasl-password-file without --sasl-mechanism").
				fix("add --sasl-mechanism, one of " + strings.Join(kafka.Mechanisms[:], ", "))
		}
		return m, nil // a password that happens to be in the environment is nobody's
	}
	if !strings.EqualFold(m.Mechanism, kafka.OAuthBearer) {
		or(&m.User, env.User)
	}
	if m.PasswordFile == "" {
		m.Password, m.PasswordFile = env.Password, env.PasswordFile
	}
	return m, nil
}

// misused is an error of the command line or the environment: nothing was tried.
func misused(err error) error {
	if err == nil {
		return nil
	}
	return (&usageError{err: err}).fix(hintOf(err) + ", by --tls-…, --sasl-…, " + envPassword + " or the variables that --help names")
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

// reach asks one broker anything: a wrong address is told at once, and not after the client's minutes of retries.
func reach(ctx context.Context, cfg kafka.ClientConfig) error {
	admin, err := kafka.NewAdmin(cfg)
	if err != nil {
		return usagef("--brokers %s: %w", strings.Join(cfg.Brokers, ","), err).fix("write host:port, as in kafka-1:9092")
	}
	defer admin.Close()
	within, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	if err := admin.Ping(within); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &failure{
			err:  fmt.Errorf("no broker of %s answers: %w", strings.Join(cfg.Brokers, ","), err),
			hint: hint.Brokers(cfg, err, byFlags),
		}
	}
	return nil
}

// byFlags is how somebody configures a client who has a command line.
var byFlags = hint.Words{
	Brokers: "--brokers", AddTLS: "add --tls", DropTLS: "leave out --tls", CA: "name its file by --tls-ca-file",
	Certificate: "--tls-cert-file and --tls-key-file",
	AddLogin:    "add --sasl-mechanism", DropLogin: "leave out --sasl-mechanism",
	Login: "--sasl-user, the password and --sasl-mechanism", Mechanism: "--sasl-mechanism",
}

package kafka

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/headrace/headrace/internal/redact"
)

// The mechanisms of a login.
const (
	Plain       = "PLAIN"
	SCRAMSHA256 = "SCRAM-SHA-256"
	SCRAMSHA512 = "SCRAM-SHA-512"
	OAuthBearer = "OAUTHBEARER"
)

// Mechanisms are all of them.
var Mechanisms = [...]string{Plain, SCRAMSHA256, SCRAMSHA512, OAuthBearer}

// Security is how a client proves who it is, and finds out whom it speaks to, for those who have files, a password or a
// token. [Security.Resolve] makes of it what ClientConfig and consumer.Config take. The zero value is neither TLS nor a
// login. It may be copied.
type Security struct {
	// TLS encrypts every connection and verifies the brokers' certificates. The files below need it.
	//
	// Defaults to false.
	TLS bool
	// CAFile has the certificates, in PEM, of whom to believe in place of the system's authorities.
	//
	// Defaults to "": the system's.
	CAFile string
	// CertFile and KeyFile have the client's own certificate and key, in PEM: both or none. They are read for every new
	// connection, so that they may be renewed; while they cannot be read, or do not belong together, the last good pair
	// serves until it expires.
	//
	// Defaults to "": the client has none.
	CertFile, KeyFile string
	// ServerName is the name that the brokers' certificates must have.
	//
	// Defaults to "": of each the host that it is reached by.
	ServerName string

	// Mechanism is one of Mechanisms, in letters of any case. PLAIN and OAUTHBEARER show the password or the token to whoever
	// listens, if there is no TLS.
	//
	// Defaults to "": no login.
	Mechanism string
	// User is who logs in. Required by all mechanisms but OAUTHBEARER, whose token says so.
	User string
	// Password is the user's, or the token of OAUTHBEARER.
	Password string
	// PasswordFile has it, with or without an end of line. It is read at every login, so that it may change.
	PasswordFile string
	// Token gives a token of OAUTHBEARER. It is called at every login, and before a token that the broker knows the end of
	// is over: keep what is still good. It must be safe for concurrent use.
	Token func(ctx context.Context) (string, error)
}

// SecurityError is a Security that cannot be used. It names what is wrong and never a secret.
type SecurityError struct {
	// What is wrong, and Fix what to do about it.
	What, Fix string
	// Err is what was found, nil where What says it all.
	Err error
}

func (e *SecurityError) Error() string {
	if e.Err != nil {
		return e.What + ": " + redact.Error(e.Err)
	}
	return e.What
}

func (e *SecurityError) Unwrap() error { return e.Err }

// Hint is what to do about it.
func (e *SecurityError) Hint() string { return e.Fix }

// Resolve reads the files and gives what ClientConfig.TLS and ClientConfig.SASL take, nil for what is not asked for. The
// error is a *SecurityError.
func (s Security) Resolve() (*tls.Config, sasl.Mechanism, error) {
	encrypted, err := s.tls()
	if err != nil {
		return nil, nil, err
	}
	mechanism, err := s.mechanism()
	if err != nil {
		return nil, nil, err
	}
	return encrypted, mechanism, nil
}

// String names everything but the secrets.
func (s Security) String() string {
	return fmt.Sprintf("tls=%t ca=%q cert=%q mechanism=%q user=%q", s.TLS, s.CAFile, s.CertFile, s.Mechanism, s.User)
}

// GoString is String: %#v shows no secrets either.
func (s Security) GoString() string { return "kafka.Security{" + s.String() + "}" }

func (s Security) tls() (*tls.Config, error) {
	if !s.TLS {
		if file := s.CAFile + s.CertFile + s.KeyFile; file != "" {
			return nil, &SecurityError{What: "certificate files without TLS", Fix: "switch TLS on, or leave out the files"}
		}
		return nil, nil //nolint:nilnil // that is what ClientConfig calls no TLS
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.ServerName}
	if s.CAFile != "" {
		roots, err := rootsOf(s.CAFile)
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = roots
	}
	if s.CertFile == "" && s.KeyFile == "" {
		return cfg, nil
	}
	if s.CertFile == "" || s.KeyFile == "" {
		return nil, &SecurityError{What: "a client certificate without its key, or a key without its certificate", Fix: "give both files, or none"}
	}
	own := &ownCertificate{certFile: s.CertFile, keyFile: s.KeyFile}
	if _, err := own.read(); err != nil { // better told now than by a connection that fails
		return nil, err
	}
	cfg.GetClientCertificate = own.forConnection
	return cfg, nil
}

func rootsOf(file string) (*x509.CertPool, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, &SecurityError{What: "the file of certificates to believe", Err: err, Fix: "name a file that this user can read"}
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, &SecurityError{What: "the file " + file + " has no certificate in PEM", Fix: "name a file with lines of BEGIN CERTIFICATE"}
	}
	return roots, nil
}

func (s Security) mechanism() (sasl.Mechanism, error) {
	name := strings.ToUpper(s.Mechanism)
	if err := s.login(name); err != nil {
		return nil, err
	}
	switch name {
	case Plain:
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			password, err := s.password()
			return plain.Auth{User: s.User, Pass: password}, err
		}), nil
	case SCRAMSHA256:
		return scram.Sha256(s.scram), nil
	case SCRAMSHA512:
		return scram.Sha512(s.scram), nil
	case OAuthBearer:
		return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			token, err := s.token(ctx)
			return oauth.Auth{Token: token}, err
		}), nil
	}
	return nil, nil //nolint:nilnil // that is what ClientConfig calls no login
}

// login says what is wrong with a login by the mechanism of this name, "" for none.
func (s Security) login(name string) error {
	all := strings.Join(Mechanisms[:], ", ")
	secret := s.Password != "" || s.PasswordFile != "" || s.Token != nil
	switch name {
	case "":
		if s.User != "" || secret {
			return &SecurityError{What: "a user, a password or a token, and no mechanism", Fix: "name one of " + all}
		}
		return nil
	case Plain, SCRAMSHA256, SCRAMSHA512:
		if s.Token != nil {
			return &SecurityError{What: "a token is for " + OAuthBearer + ", not for " + name, Fix: "give a password, or name " + OAuthBearer}
		}
		if s.User == "" {
			return &SecurityError{What: "mechanism " + name + " without a user", Fix: "name the user"}
		}
	case OAuthBearer:
		if s.User != "" {
			return &SecurityError{What: "mechanism " + name + " with a user", Fix: "leave out the user: the token says who it is"}
		}
	default:
		return &SecurityError{What: fmt.Sprintf("mechanism %q is not known", s.Mechanism), Fix: "use one of " + all}
	}
	if !secret {
		return &SecurityError{What: "mechanism " + name + " without a password or token", Fix: "give one, or a file that has it"}
	}
	if s.Password != "" && s.PasswordFile != "" || s.Token != nil && (s.Password != "" || s.PasswordFile != "") {
		return &SecurityError{What: "a password or token is given twice", Fix: "give one, or a file, or a function"}
	}
	_, err := s.password() // of a file it is better told now than by a login that fails
	return err
}

func (s Security) scram(context.Context) (scram.Auth, error) {
	password, err := s.password()
	return scram.Auth{User: s.User, Pass: password}, err
}

func (s Security) password() (string, error) {
	if s.PasswordFile == "" {
		return s.Password, nil
	}
	data, err := os.ReadFile(s.PasswordFile)
	if err != nil {
		return "", &SecurityError{What: "the password file", Err: err, Fix: "name a file that this user can read"}
	}
	if data = bytes.TrimRight(data, "\r\n"); len(data) == 0 {
		return "", &SecurityError{What: "the password file " + s.PasswordFile + " is empty", Fix: "write the password into it"}
	}
	return string(data), nil
}

func (s Security) token(ctx context.Context) (string, error) {
	if s.Token == nil {
		return s.password()
	}
	token, err := s.Token(ctx)
	if err != nil {
		return "", fmt.Errorf("no token for %s: %w", OAuthBearer, redact.Of(err, nil))
	}
	if token == "" {
		return "", errors.New("no token for " + OAuthBearer + ": it is empty")
	}
	return token, nil
}

package hint

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/kafka"
)

// Brokers says what to do about the error of a client of this configuration that reached no broker. It always has
// something to say, and nothing of it is a secret.
func Brokers(cfg kafka.ClientConfig, err error, w Words) string {
	if own := interface{ Hint() string }(nil); errors.As(err, &own) {
		return own.Hint() // of a certificate or a password that could not be read
	}
	for _, of := range []func(kafka.ClientConfig, error, Words) string{login, certificate, alerted, otherProtocol, address, hungUp} {
		if hint := of(cfg, err, w); hint != "" {
			return hint
		}
	}
	return "check " + w.Brokers + " and what lies between: nobody answers there"
}

// login is about a broker that was spoken to.
func login(_ kafka.ClientConfig, err error, w Words) string {
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return "check " + w.Login
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return "the brokers do not have that mechanism at this port: check " + w.Mechanism
	case errors.Is(err, kerr.IllegalSaslState):
		return "the brokers want no login at this port: " + w.DropLogin + ", or name the port for logins"
	}
	return ""
}

// address is about one where nobody is.
func address(cfg kafka.ClientConfig, err error, w Words) string {
	var unknown *net.DNSError
	switch {
	case errors.As(err, &unknown) && !begunWith(cfg, unknown.Name):
		return "the brokers tell clients to go to " + unknown.Name + ", a name that nobody knows here: correct their advertised.listeners, or make it known"
	case errors.As(err, &unknown):
		return "check the host in " + w.Brokers + ": nobody knows that name here"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "check " + w.Brokers + ": nobody listens at that port, or the broker is down"
	}
	return ""
}

// begunWith says whether a host is one of those that the client was given. It learns the others from the brokers.
func begunWith(cfg kafka.ClientConfig, host string) bool {
	return slices.ContainsFunc(cfg.Brokers, func(address string) bool {
		known, _, err := net.SplitHostPort(address)
		if err != nil {
			known = address
		}
		return strings.EqualFold(strings.TrimSuffix(known, "."), strings.TrimSuffix(host, "."))
	})
}

// The client tells by text alone how far it came, and what it took the answer for. A test has each of them said.
const (
	inDial        = "unable to dial"
	eofInDial     = "immediately after a dial"
	afterVersions = "immediately after a request was issued"
	tlsAlert      = "tls alert record"
	httpAnswer    = "beginning of an HTTP response"
)

func says(err error, texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(err.Error(), text) })
}

// otherProtocol is about a port at which something else is spoken.
func otherProtocol(cfg kafka.ClientConfig, err error, w Words) string {
	switch {
	case errors.As(err, new(tls.RecordHeaderError)), cfg.TLS != nil && closed(err) && says(err, inDial, eofInDial):
		return "the brokers do not speak TLS at this port: " + w.DropTLS + ", or name their TLS port"
	case says(err, tlsAlert):
		return "the brokers speak TLS at this port: " + w.AddTLS
	case says(err, httpAnswer):
		return "check the port in " + w.Brokers + ": a web server answers there"
	}
	return ""
}

// closed is a connection that the other side ended, in whatever way.
func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// hungUp is about one that ended without a word, as brokers do when they want something else: what is most likely.
func hungUp(cfg kafka.ClientConfig, err error, w Words) string {
	switch {
	case !closed(err):
		return ""
	case cfg.SASL != nil && cfg.TLS == nil:
		return "check " + w.Brokers + ", " + w.Login + "; if the brokers want TLS, " + w.AddTLS
	case cfg.SASL != nil:
		return "check " + w.Brokers + ", " + w.Login
	case errors.As(err, new(*kgo.ErrFirstReadEOF)) && says(err, afterVersions):
		return "the brokers want a login at this port: " + w.AddLogin
	case cfg.TLS == nil:
		return "check " + w.Brokers + "; if the brokers want TLS, " + w.AddTLS
	}
	return "check " + w.Brokers + "; if the brokers want a client certificate, give it by " + w.Certificate + "; if a login, " + w.AddLogin
}

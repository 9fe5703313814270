package fault

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
)

// network knows what the net, crypto/tls and net/http packages say. Whether a request went out decides: what surely did
// not is Transient, the rest is Ambiguous. Who traced the request knows better and says so with a verb.
func network(head []error, call bool) (Fault, bool) {
	if rule := distrust(head); rule != "" {
		return Fault{Class: ClassUnavailable, Dependency: peer(head), Rule: rule}, true
	}
	if rule := unsent(head); rule != "" {
		return Fault{Class: ClassTransient, Rule: rule}, true
	}
	through, viaHTTP := first[*url.Error](head)
	switch {
	case viaHTTP && safe(strings.ToUpper(through.Op)):
		return Fault{Class: ClassTransient, Rule: "safe http method"}, true
	case is(head, context.DeadlineExceeded):
		return cutShort(call, "deadline"), true
	case is(head, context.Canceled):
		return cutShort(call, "cancelled by the handler"), true
	case timedOut(head):
		return Fault{Class: ClassAmbiguous, Rule: "timeout"}, true
	case lost(head):
		return Fault{Class: ClassAmbiguous, Rule: "connection lost"}, true
	case viaHTTP && through.Op == "parse":
		return Fault{Class: ClassPermanent, Rule: "bad url"}, true
	case viaHTTP:
		return Fault{Class: ClassAmbiguous, Rule: "http"}, true
	}
	return Fault{}, false
}

// distrust: two sides that do not accept each other will not accept the next record either. A refused client
// certificate comes as a remote alert, under TLS 1.3 even after the request was written.
func distrust(head []error) string {
	switch {
	case has[*tls.CertificateVerificationError](head), has[x509.UnknownAuthorityError](head),
		has[x509.HostnameError](head), has[x509.CertificateInvalidError](head):
		return "certificate"
	case has[tls.RecordHeaderError](head), is(head, http.ErrSchemeMismatch):
		return "no tls"
	}
	if op, ok := first[*net.OpError](head); ok && (op.Op == "remote error" || op.Op == "local error") {
		return "tls alert"
	}
	return ""
}

// unsent is what failed before there was a connection to send on.
func unsent(head []error) string {
	if has[*net.DNSError](head) {
		return "dns"
	}
	if op, ok := first[*net.OpError](head); ok && connecting(op.Op) {
		return "dial"
	}
	if is(head, syscall.ECONNREFUSED, syscall.EMFILE, syscall.ENFILE) {
		return "refused"
	}
	if tlsTimeout(head) {
		return "tls timeout"
	}
	return ""
}

func connecting(op string) bool {
	return op == "dial" || op == "proxyconnect" || strings.HasPrefix(op, "socks")
}

// tlsTimeout is net/http's, which has no exported name. It must be told from the other timeouts of net/http, all of
// which come after the request went out; a test pins the type.
func tlsTimeout(head []error) bool {
	return len(head) > 0 && fmt.Sprintf("%T", head[len(head)-1]) == "http.tlsHandshakeTimeoutError"
}

func timedOut(head []error) bool {
	for _, err := range head {
		if t, ok := err.(interface{ Timeout() bool }); ok && t.Timeout() {
			return true
		}
	}
	return false
}

// lost is a connection that ended while it was used.
func lost(head []error) bool {
	if has[*net.OpError](head) {
		return true
	}
	return is(head, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed,
		syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.ETIMEDOUT, syscall.ENOTCONN, syscall.ESHUTDOWN,
		syscall.EHOSTUNREACH, syscall.EHOSTDOWN, syscall.ENETUNREACH, syscall.ENETDOWN, syscall.ENETRESET)
}

// peer names whom the error is about.
func peer(head []error) string {
	if e, ok := first[*url.Error](head); ok {
		if u, err := url.Parse(e.URL); err == nil {
			return orNetwork(u.Host)
		}
	}
	if e, ok := first[*net.OpError](head); ok && e.Addr != nil {
		return orNetwork(e.Addr.String())
	}
	return Network
}

func orNetwork(dependency string) string {
	if dependency == "" {
		return Network
	}
	return dependency
}

package hint

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"

	"github.com/headrace/headrace/kafka"
)

// certificate is about the brokers' certificate, which we refused.
func certificate(_ kafka.ClientConfig, err error, w Words) string {
	var refused *tls.CertificateVerificationError
	var otherName x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case !errors.As(err, &refused):
		return ""
	case errors.As(err, &otherName):
		return "the brokers' certificate is not for the host " + otherName.Host + ": call them in " + w.Brokers + " by a name that it has, or have it made for this one"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the brokers' certificate is not valid at this time: have it renewed, or set this machine's clock"
	}
	return "the brokers' certificate is of an authority that is not trusted here: " + w.CA
}

// Alerts that have a remedy of their own.
const (
	handshakeFailure       tls.AlertError = 40
	badCertificate         tls.AlertError = 42
	unsupportedCertificate tls.AlertError = 43
	revokedCertificate     tls.AlertError = 44
	expiredCertificate     tls.AlertError = 45
	unknownCertificate     tls.AlertError = 46
	unknownAuthority       tls.AlertError = 48
	accessDenied           tls.AlertError = 49
	protocolVersion        tls.AlertError = 70
	insufficientSecurity   tls.AlertError = 71
	unrecognizedName       tls.AlertError = 112
	certificateRequired    tls.AlertError = 116
)

// alertOf is the alert by which the other side ended a handshake. crypto/tls has it in a type that only users of QUIC can name,
// and in words that are the same.
func alertOf(err error) (a tls.AlertError, ok bool) {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return 0, false
	}
	for n := range 256 {
		if a = tls.AlertError(n); op.Err.Error() == a.Error() {
			return a, true
		}
	}
	return 0, false
}

// alerted is about what the brokers refused: as a rule our certificate, or that we have none.
func alerted(cfg kafka.ClientConfig, err error, w Words) string {
	a, ok := alertOf(err)
	if !ok {
		return ""
	}
	if !identified(cfg) {
		if hint := wanted(a, w); hint != "" {
			return hint
		}
	}
	switch a {
	case certificateRequired: // one that is of none of the authorities that the brokers name is kept back
		return "the brokers want a certificate of an authority that they name, and this client's is of another: give one of theirs by " + w.Certificate
	case unknownAuthority:
		return "the brokers do not trust the authority of this client's certificate: give one of theirs by " + w.Certificate
	case expiredCertificate, revokedCertificate:
		return "this client's certificate is not valid any more: renew that of " + w.Certificate
	case badCertificate, unsupportedCertificate, unknownCertificate, accessDenied:
		return "the brokers refuse this client's certificate: see their log, and check " + w.Certificate
	case handshakeFailure, protocolVersion, insufficientSecurity:
		return "the brokers and this client have no version or cipher of TLS in common: see ssl.enabled.protocols and ssl.cipher.suites of the brokers"
	case unrecognizedName:
		return "the brokers do not know the host by which they are called: check " + w.Brokers
	}
	return "the brokers ended the TLS handshake: see their log for why"
}

// wanted is about an alert to a client that has no certificate, "" where it means the same to all.
func wanted(a tls.AlertError, w Words) string {
	switch a {
	case certificateRequired, badCertificate, unknownCertificate, accessDenied:
		return "the brokers want a client certificate: give it by " + w.Certificate
	case handshakeFailure: // of TLS 1.2, which has no alert of its own for that
		return "the brokers want a client certificate, or have no version or cipher of TLS in common with this client: give it by " + w.Certificate + ", or see their log"
	}
	return ""
}

// identified says whether the client has a certificate of its own.
func identified(cfg kafka.ClientConfig) bool {
	return cfg.TLS != nil && (len(cfg.TLS.Certificates) > 0 || cfg.TLS.GetClientCertificate != nil)
}

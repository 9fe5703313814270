package kafka

import (
	"crypto/tls"
	"sync"
	"time"
)

// ownCertificate is a client's certificate and key in files that somebody else renews. It is safe for concurrent use.
type ownCertificate struct {
	certFile, keyFile string

	mu   sync.Mutex
	good *tls.Certificate // the last pair that belonged together
}

// read gives what the files have.
func (o *ownCertificate) read() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(o.certFile, o.keyFile)
	if err != nil {
		return nil, &SecurityError{
			What: "the client certificate " + o.certFile + " or its key " + o.keyFile, Err: err,
			Fix: "give files in PEM that belong together, the key without a password",
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.good = &pair
	return &pair, nil
}

// forConnection reads anew for each connection. Whoever renews writes one file after the other: the certificate is new ->
// we read both -> they do not belong together yet. So the last good pair serves as long as it is valid.
//
// A broker that asks for a certificate and believes none of its authority is sent none: it may do without.
func (o *ownCertificate) forConnection(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := o.pair()
	if err != nil {
		return nil, err
	}
	if none := asked.SupportsCertificate(pair) != nil; none {
		pair = new(tls.Certificate)
	}
	return pair, nil
}

func (o *ownCertificate) pair() (*tls.Certificate, error) {
	pair, err := o.read()
	if err == nil {
		return pair, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.good == nil || o.good.Leaf == nil || time.Now().After(o.good.Leaf.NotAfter) {
		return nil, err
	}
	return o.good, nil
}

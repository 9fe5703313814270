package downstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"sync/atomic"

	"github.com/headrace/headrace/fault"
)

// sending is what is known of a request on its way: nothing was sent as long as there was no WroteHeaders since the last
// GotConn. net/http calls the first after the headers are in its buffer and before it flushes them.
type sending struct {
	d            *Dependency
	asked, wrote atomic.Bool
	conns        atomic.Int32
	stop         context.CancelCauseFunc
	safe, keyed  bool
	answer       *answer // nil as long as there is none, and for one that has no body
}

type sendingKey struct{}

// sendingOf is that of the request that resp answers, nil if no Transport has sent it.
func sendingOf(resp *http.Response) *sending {
	if resp.Request == nil {
		return nil
	}
	s, _ := resp.Request.Context().Value(sendingKey{}).(*sending)
	return s
}

// maxConns is on how many connections one request may be tried by net/http itself. It goes on for ever when a server
// sends GOAWAY on each new connection: 5,623 of them in 1.5s.
const maxConns = 16

var (
	errResent   = errors.New("net/http would have sent the request again by itself")
	errNoServer = errors.New("every new connection was refused before the request was sent")
)

func (s *sending) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn:      func(string) { s.asked.Store(true) },
		GotConn:      s.gotConn,
		WroteHeaders: func() { s.wrote.Store(true) },
	}
}

// gotConn stops what net/http's HTTP/2 would do by itself: send a request without a body again, up to six times, if the
// server says that it did not run it. It looks at the context under the lock that it writes headers with, so what is
// stopped here is not sent. Over HTTP/1 what is not safe, to its knowledge, is sent again only if nothing was written at
// all, and a connection that is stopped is closed before RoundTrip returns, so that wrote is the truth.
func (s *sending) gotConn(info httptrace.GotConnInfo) {
	again := s.wrote.Swap(false)
	switch {
	case again && s.keyed && isHTTP2(info):
		s.stop(errResent)
	case s.conns.Add(1) > maxConns:
		s.stop(errNoServer)
	}
}

func isHTTP2(info httptrace.GotConnInfo) bool {
	c, ok := info.Conn.(*tls.Conn)
	return ok && c.ConnectionState().NegotiatedProtocol == "h2"
}

// unsent is whether surely nothing was sent. A context that ends once there is a connection says nothing: over HTTP/2
// the headers may be written after RoundTrip has returned.
func (s *sending) unsent(ctx context.Context) bool {
	if !s.asked.Load() || s.wrote.Load() {
		return false
	}
	return s.conns.Load() == 0 || ctx.Err() == nil || s.stopped(ctx)
}

// stopped is for a context that we ended ourselves, before the request could be sent again.
func (s *sending) stopped(ctx context.Context) bool {
	return errors.Is(context.Cause(ctx), errNoServer) || errors.Is(context.Cause(ctx), errResent)
}

// explain says with err what it means.
func (t *transport) explain(ctx context.Context, req *http.Request, s *sending, err error) error {
	var refused *fault.RefusedError
	if fault.Said(err) || errors.As(err, &refused) || errors.Is(err, fault.ErrNoTime) {
		return err
	}
	// What the network itself says of two sides that do not accept each other holds whenever it says it: under TLS 1.3 a
	// client certificate is refused after the request was written.
	f := new(fault.Classifier).ClassifyCall(context.WithoutCancel(ctx), err)
	if f.Class == fault.ClassUnavailable {
		f.Dependency = t.d.cfg.Name
		return fault.Say(err, f)
	}
	if s.proxyWantsCredentials(err) {
		return fault.Say(err, fault.Fault{Class: fault.ClassUnavailable, Dependency: t.d.cfg.Name, Rule: "http 407"})
	}
	_, direct := t.base.(*http.Transport)
	switch {
	case s.unsent(ctx):
		f = fault.Fault{Class: fault.ClassTransient, Rule: "not sent"}
	case !s.asked.Load() && direct && ctx.Err() != nil:
		f = fault.Fault{Class: fault.ClassTransient, Rule: "not sent"}
	case !s.asked.Load() && direct:
		f = fault.Fault{Class: fault.ClassPermanent, Rule: "bad request"}
	case !s.asked.Load():
		return err // a base that does not say what it does: by the error alone
	case unprocessed(err):
		f = fault.Fault{Class: fault.ClassTransient, Rule: "http2 refused"}
	default:
		f = cut(s.safe)
	}
	return fault.Say(err, f)
}

// proxyWantsCredentials is a 407 to a CONNECT, of which net/http leaves nothing but the reason; a test pins it.
func (s *sending) proxyWantsCredentials(err error) bool {
	return s.conns.Load() == 0 && err.Error() == http.StatusText(http.StatusProxyAuthRequired)
}

// cut is the meaning of an exchange that broke off after the request was sent.
func cut(safe bool) fault.Fault {
	if safe {
		return fault.Fault{Class: fault.ClassTransient, Rule: "safe http method"}
	}
	return fault.Fault{Class: fault.ClassAmbiguous, Rule: "sent"}
}

// refusals are what net/http says when an HTTP/2 server reset the stream before it ran it, or named it as beyond the last
// that it would run. It has no type for them; a test pins the texts. From their beginning, because the text of a GOAWAY
// may quote the server.
var refusals = regexp.MustCompile(`^(http2: Transport: cannot retry err \[)?` +
	`(stream error: stream ID \d+; REFUSED_STREAM\b|http2: Transport received Server's graceful shutdown GOAWAY|` +
	`http2: Transport received GOAWAY from server ErrCode:)`)

func unprocessed(err error) bool { return refusals.MatchString(err.Error()) }

package fault

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// IdempotencyKey is the header that makes a request's repetition harmless.
const IdempotencyKey = "Idempotency-Key"

// StatusError is an HTTP answer that is no success.
type StatusError struct {
	// Code is the answer's status code.
	Code int
	// Method is the request's; "" is taken as POST.
	Method string
	// Keyed says that the request carried an idempotency key.
	Keyed bool
	// RetryAfter is what the answer asked for, 0 if nothing (see ParseRetryAfter).
	RetryAfter time.Duration
	// Dependency names who answered, for holds. "" is taken as Network.
	Dependency string
	// Named says that Dependency is a name, as downstream.Check gives it, and not a request's host.
	Named bool
}

// NewStatusError reads what resp says, which is no success. The dependency is the request's host. It leaves the body
// alone.
func NewStatusError(resp *http.Response) *StatusError {
	e := &StatusError{
		Code:       resp.StatusCode,
		RetryAfter: ParseRetryAfter(resp.Header.Get("Retry-After"), resp.Header.Get("Date"), time.Now()),
	}
	if req := resp.Request; req != nil {
		e.Method, e.Keyed = req.Method, keyed(req.Header)
		if req.URL != nil {
			e.Dependency = req.URL.Host
		}
	}
	return e
}

// keyed takes any spelling: net/http resends by itself what carries the canonical one, so the key is set under
// "idempotency-key", which Get does not find.
func keyed(h http.Header) bool {
	for name, values := range h {
		if strings.EqualFold(name, IdempotencyKey) && len(values) > 0 {
			return true
		}
	}
	return false
}

// Error names the dependency, or else the method, and the status; never the URL, which may carry a secret, nor its host.
func (e *StatusError) Error() string {
	if e.Named {
		return fmt.Sprintf("%s: %d %s", e.Dependency, e.Code, http.StatusText(e.Code))
	}
	method := e.Method
	if method == "" {
		method = http.MethodPost
	}
	return fmt.Sprintf("%s: status %d %s", method, e.Code, http.StatusText(e.Code))
}

func status(head []error, _ bool) (Fault, bool) {
	e, ok := first[*StatusError](head)
	if !ok {
		return Fault{}, false
	}
	f := Fault{Class: e.class(), RetryAfter: e.RetryAfter, Rule: fmt.Sprintf("http %d", e.Code)}
	if f.Class == ClassUnavailable {
		f.Dependency = orNetwork(e.Dependency)
	}
	return f, true
}

func (e *StatusError) class() Class {
	switch e.Code {
	// Not now: they say themselves that nothing was done. 421 is a connection that leads to the wrong server.
	case http.StatusTooManyRequests, http.StatusTooEarly, http.StatusMisdirectedRequest:
		return ClassTransient
	// Our credentials, or a network that wants some: every record would fail, and none is at fault.
	case http.StatusUnauthorized, http.StatusProxyAuthRequired, http.StatusNetworkAuthenticationRequired:
		return ClassUnavailable
	// It is elsewhere, and nothing was done here: its address is wrong for every record.
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return ClassUnavailable
	case http.StatusConflict, http.StatusUnprocessableEntity:
		return e.aboutItsKey()
	case http.StatusServiceUnavailable, http.StatusRequestTimeout:
		return e.givenUp()
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return ClassPermanent
	}
	if e.Code >= 500 && e.Code < 600 {
		return e.halfWay()
	}
	return ClassPermanent
}

// keyReused is the rule of a 422 under a key.
const keyReused = "http 422"

// aboutItsKey: under an idempotency key 409 says that a call with this key is running, and 422 that the key was used
// with another body, so that something was executed, but not surely this.
func (e *StatusError) aboutItsKey() Class {
	switch {
	case !e.Keyed:
		return ClassPermanent
	case e.Code == http.StatusConflict:
		return ClassBusy
	}
	return ClassAmbiguous
}

// givenUp: a server that means "not now" says until when. Without that, proxies send 503 and 408 too, after the request
// went out to somebody who may have executed it.
func (e *StatusError) givenUp() Class {
	if e.RetryAfter > 0 && e.Code == http.StatusServiceUnavailable || e.Keyed || idempotent(e.Method) {
		return ClassTransient
	}
	return ClassAmbiguous
}

// halfWay: the server, or a proxy before it, failed with the request in hand.
func (e *StatusError) halfWay() Class {
	if safe(e.Method) {
		return ClassTransient
	}
	return ClassAmbiguous
}

// safe methods execute nothing that could be left half done.
func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// idempotent methods may be repeated by their definition.
func idempotent(method string) bool {
	return safe(method) || method == http.MethodPut || method == http.MethodDelete
}

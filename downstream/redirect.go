package downstream

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/headrace/headrace/fault"
)

// origin is the request that http.Client was given, of which req is what a redirect has made. What is asked of the
// dependency is asked by that one, wherever it is sent.
func origin(req *http.Request) *http.Request {
	for range maxRedirects {
		if req.Response == nil || req.Response.Request == nil {
			break
		}
		req = req.Response.Request
	}
	return req
}

// maxRedirects is more than any client follows.
const maxRedirects = 100

// errTurned has the status of the redirect, and never its address.
var errTurned = errors.New("a redirect turned the request into a GET, which asks for something else: it is not followed on " +
	"behalf of a record; give the client the dependency's own address, or, if such an answer is a success, have " +
	"http.Client.CheckRedirect return http.ErrUseLastResponse")

// turned refuses what http.Client makes of a POST after a 301, 302 or 303: a GET, whose success would say that the record
// was carried out. It may be the dependency's way of saying so, or a proxy's page for who is not logged in, or for
// everybody while the dependency is away. So nobody knows what became of the first request; the next one has its key.
func turned(req *http.Request) error {
	first := origin(req)
	if _, behalf := PermitFrom(req.Context()); !behalf || !safe(req.Method) || safe(first.Method) {
		return nil
	}
	err := fmt.Errorf("%s: status %d: %w", first.Method, req.Response.StatusCode, errTurned)
	return fault.Say(err, fault.Fault{Class: fault.ClassAmbiguous, Rule: "redirected"})
}

package downstream

import (
	"net/http"
	"strings"

	"github.com/headrace/headrace/fault"
)

// keyHeader is fault.IdempotencyKey as a map key that net/http does not know: what carries one of the names that it
// knows, it sends again by itself, on each idle connection that the server has closed after reading. One RoundTrip of a
// POST was read 50 times. On the wire, case does not matter.
const keyHeader = "idempotency-key"

// withKey gives req, or a copy, with its idempotency key where net/http does not see it: its own key, or the record's.
func withKey(req *http.Request) *http.Request {
	takesKey(req.Context()) // with a key of its own, or none for what is safe, it is cared for as well
	own := isKeyed(req)
	key, ok := "", own
	if !own && !safe(req.Method) {
		key, ok = IdempotencyKey(req.Context(), operation(req))
	}
	if !ok {
		return req
	}
	out := *req
	out.GetBody = nil // for the same reason: HTTP/2 would take it to send the request again
	out.Header = make(http.Header, len(req.Header)+1)
	for name, values := range req.Header {
		if isKeyName(name) {
			name = strings.ToLower(name)
		}
		out.Header[name] = append(out.Header[name], values...)
	}
	if !own {
		out.Header[keyHeader] = []string{key}
	}
	return &out
}

// operation is that of the first request: after a redirect it is still the same one, and with a key of its own it would be
// carried out twice. So it is for another host too: a redirect that keeps the method hands the whole request on, and the
// key has no secret in it.
func operation(req *http.Request) string {
	req = origin(req)
	if name, ok := req.Context().Value(operationKey{}).(string); ok {
		return name
	}
	path := ""
	if req.URL != nil {
		path = req.URL.Path
	}
	return method(req) + " " + path
}

func isKeyed(req *http.Request) bool {
	for name, values := range req.Header {
		if isKeyName(name) && len(values) > 0 {
			return true
		}
	}
	return false
}

func isKeyName(name string) bool {
	return strings.EqualFold(name, fault.IdempotencyKey) || strings.EqualFold(name, "X-Idempotency-Key")
}

func method(req *http.Request) string {
	if req.Method == "" {
		return http.MethodGet
	}
	return req.Method
}

// safe methods execute nothing.
func safe(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// idempotent methods may be repeated by their definition.
func idempotent(method string) bool {
	return safe(method) || method == http.MethodPut || method == http.MethodDelete
}

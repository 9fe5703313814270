package idempotency

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// ReplayedHeader is "true" on an answer that is the stored one of an earlier request.
const ReplayedHeader = "Idempotency-Replayed"

// Answer is what a request is answered.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// write sends the answer. What its middlewares have set beside it stays.
func (a Answer) write(w http.ResponseWriter, replayed bool) {
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	// A handler that sets the type to nil wants none -> nothing of it is stored -> net/http would guess one for the replay.
	if _, typed := a.Header["Content-Type"]; replayed && !typed && a.guessable() {
		w.Header()["Content-Type"] = nil
	}
	w.Header().Del(ReplayedHeader) // nobody else says so
	w.Header().Del("Content-Length")
	if replayed {
		w.Header().Set(ReplayedHeader, "true")
	}
	w.WriteHeader(a.Status)
	if bodyAllowed(a.Status) {
		_, _ = w.Write(a.Body) // a client that has hung up asks again
	}
}

// guessable says that net/http would guess a type from the body.
func (a Answer) guessable() bool { return len(a.Body) > 0 && a.Header.Get("Content-Encoding") == "" }

// withType has the type that net/http would guess, unless somebody has said which, or none. A replay must have the same.
func (a Answer) withType() Answer {
	if _, typed := a.Header["Content-Type"]; !typed && a.guessable() {
		a.Header.Set("Content-Type", http.DetectContentType(a.Body))
	}
	return a
}

// Validate says why an answer cannot be a key's for good.
func (a Answer) Validate() error {
	switch {
	case a.Status < 200 || a.Status > 599:
		return fmt.Errorf("idempotency: an answer's status is between 200 and 599, not %d", a.Status)
	case !final(a.Status):
		return fmt.Errorf("idempotency: an answer %d says \"not now\": give one that is for good, as 201", a.Status)
	}
	return nil
}

// final says whether an answer is the key's for good. Not final is what says "not now", and what says nothing of what
// was done.
func final(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusMisdirectedRequest,
		http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status < http.StatusInternalServerError
}

// storedHeaders are those that belong to the answer and not to the connection, the client or the moment.
var storedHeaders = []string{
	"Content-Type", "Content-Language", "Content-Encoding", "Content-Location", "Location", "Etag", "Last-Modified", "Link",
}

// encodeHeader writes those of h that are allowed, as they are on the wire. A value that no client would read is left
// out: it could not be read back either.
func encodeHeader(h http.Header, allowed []string) []byte {
	kept := http.Header{}
	for name, values := range h {
		if !slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(a, name) }) {
			continue
		}
		for _, v := range values {
			if httpguts.ValidHeaderFieldValue(v) {
				kept[name] = append(kept[name], v)
			}
		}
	}
	var b bytes.Buffer
	_ = kept.Write(&b) // a buffer takes everything
	return b.Bytes()
}

func decodeHeader(b []byte) (http.Header, error) {
	if len(b) == 0 {
		return http.Header{}, nil
	}
	h, err := textproto.NewReader(bufio.NewReader(io.MultiReader(bytes.NewReader(b), strings.NewReader("\r\n")))).ReadMIMEHeader()
	if err != nil {
		return nil, fmt.Errorf("stored headers: %w", err)
	}
	return http.Header(h), nil
}

// ErrTooLarge is what Write gives a handler whose answer is longer than Config.MaxBytes. The answer is not sent.
var ErrTooLarge = errors.New("idempotency: the answer is longer than Config.MaxBytes, and cannot be stored")

// buffer is the handler's ResponseWriter: nothing is sent before it is durable. So it is no http.Flusher and no
// http.Hijacker.
type buffer struct {
	limit  int
	header http.Header
	sent   http.Header // as it was at WriteHeader
	status int
	body   bytes.Buffer
	over   bool
}

func newBuffer(limit int) *buffer { return &buffer{limit: limit, header: http.Header{}} }

func (b *buffer) Header() http.Header { return b.header }

// WriteHeader ignores what is informational: the answer comes whole.
func (b *buffer) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", status)) // as net/http does
	}
	if b.status == 0 && status >= 200 {
		b.status, b.sent = status, b.header.Clone()
	}
}

func (b *buffer) Write(p []byte) (int, error) {
	if b.status == 0 {
		b.WriteHeader(http.StatusOK)
	}
	if !bodyAllowed(b.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if b.over || len(p) > b.limit-b.body.Len() {
		b.over = true
		return 0, ErrTooLarge
	}
	return b.body.Write(p)
}

// answer is what the handler has answered when it has returned.
func (b *buffer) answer() Answer {
	if b.status == 0 {
		b.WriteHeader(http.StatusOK)
	}
	return Answer{Status: b.status, Header: b.sent, Body: b.body.Bytes()}.withType()
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

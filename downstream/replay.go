package downstream

import (
	"bytes"
	"errors"
	"io"
	"net/http"
)

// maxReplay is how much of a body without GetBody is kept for another try.
const maxReplay = 1 << 20

// replay gives the body of a request to each of its tries.
type replay struct {
	body io.ReadCloser // for the next try; nil without one
	get  func() (io.ReadCloser, error)
}

// newReplay reads a short body that cannot be had again otherwise, if it may be needed again.
func newReplay(req *http.Request, more bool) (*replay, error) {
	r := &replay{body: req.Body, get: getBody(req)}
	if !more || r.get != nil || r.body == nil {
		return r, nil
	}
	kept, err := io.ReadAll(io.LimitReader(r.body, maxReplay+1))
	if err != nil {
		return nil, errors.Join(err, r.body.Close())
	}
	if len(kept) > maxReplay { // once only
		r.body = readCloser{io.MultiReader(bytes.NewReader(kept), r.body), r.body}
		return r, nil
	}
	if err := r.body.Close(); err != nil {
		return nil, err
	}
	r.get = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(kept)), nil }
	r.body, err = r.get()
	return r, err
}

func getBody(req *http.Request) func() (io.ReadCloser, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return func() (io.ReadCloser, error) { return req.Body, nil }
	}
	return req.GetBody
}

// next is req for the next try.
func (r *replay) next(req *http.Request) *http.Request {
	out := *req
	out.Body = r.body
	return &out
}

// again gets the body for one more try.
func (r *replay) again() bool {
	if r.get == nil {
		return false
	}
	body, err := r.get()
	r.body = body
	return err == nil
}

// drop closes the body of a try that is not made.
func (r *replay) drop() {
	if r.body != nil {
		_ = r.body.Close() // nobody was told of it
	}
}

type readCloser struct {
	io.Reader
	io.Closer
}

// closeBody is a RoundTripper's duty when it does not send a request. Nobody is there to be told of an error.
func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

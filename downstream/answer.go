package downstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headrace/headrace/fault"
)

// maxDrain is how much of an answer is read that nobody wants, for the sake of its connection.
const maxDrain = 64 << 10

// answer is the body of a response. It tells once that it has ended: read to its end, closed, or broken off; or, while
// somebody holds it, as that one says.
type answer struct {
	io.ReadCloser
	ctx  context.Context // the request's
	safe bool            // its method
	end  func(error)
	held atomic.Bool
}

// newAnswer is nil, and has ended, if there is no body.
func newAnswer(ctx context.Context, body io.ReadCloser, safe bool, end func(error)) *answer {
	if body == nil || body == http.NoBody {
		end(nil)
		return nil
	}
	var once sync.Once
	return &answer{ReadCloser: body, ctx: ctx, safe: safe, end: func(err error) { once.Do(func() { end(err) }) }}
}

// hold gives the answer that resp is of, nil if it has none, which from now on ends when [answer.judged] is told how: to be
// read to its end is no success yet. It is found by the request, whatever somebody has wrapped around the body.
func hold(resp *http.Response) *answer {
	s := sendingOf(resp)
	if s == nil || s.answer == nil {
		return nil
	}
	s.answer.held.Store(true)
	return s.answer
}

// judged ends an answer that is held, and gives err as whoever sent the request is to have it.
func (a *answer) judged(err error) error {
	if a == nil {
		return err
	}
	a.end(err)
	var already *ForeignError
	if errors.As(err, &already) {
		return err
	}
	return markAnswer(a.ctx, err)
}

// Read says with the error of a body that breaks off what it means: the server has executed the request, or is about to.
func (a *answer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		a.over()
		return n, io.EOF
	}
	err = fault.Say(err, cut(a.safe))
	a.end(err)
	return n, markAnswer(a.ctx, err)
}

// Close is no failure: whoever closes has read enough.
func (a *answer) Close() error {
	defer a.over()
	return a.ReadCloser.Close()
}

// over is an end that is no failure.
func (a *answer) over() {
	if !a.held.Load() {
		a.end(nil)
	}
}

// Check gives the error that an answer is: a *fault.StatusError, which knows what the answer means for a record, from 400
// on, and for a redirect that was not followed although it says that the request was not carried out (307, 308); else
// nil. One of another dependency than the route's is in a [ForeignError]. Then the body is read and closed, so that its connection can be used again; read it before if there is
// something in it, and do not put it into errors. The method, the status and Retry-After are all that the error says.
// [DecodeJSON] checks by itself.
func Check(resp *http.Response) error {
	switch {
	case resp.StatusCode == http.StatusTemporaryRedirect, resp.StatusCode == http.StatusPermanentRedirect:
	case resp.StatusCode < http.StatusBadRequest:
		return nil
	}
	keep(resp)
	err := error(statusError(resp))
	if resp.Request == nil {
		return err
	}
	ctx := resp.Request.Context()
	if after, ok := ctx.Value(sentKey{}).(time.Duration); ok {
		err = sentBefore(err, after)
	}
	return markAnswer(ctx, err)
}

// statusError names the dependency as its gate and its breaker do.
func statusError(resp *http.Response) *fault.StatusError {
	e := fault.NewStatusError(resp)
	if resp.Request != nil {
		e.Keyed = isKeyed(resp.Request) && !replayed(resp)
	}
	if s := sendingOf(resp); s != nil {
		e.Dependency, e.Named = s.d.cfg.Name, true
	}
	return e
}

// replayed: a 409 or 422 that package idempotency has stored is its handler's last word, and says nothing of the key. The
// first time it cannot be told from one that does; so it is asked for again.
func replayed(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusConflict, http.StatusUnprocessableEntity:
		return resp.Header.Get("Idempotency-Replayed") == "true"
	}
	return false
}

// keep reads and closes the body of an answer that is a failure, and leaves what it read in its place.
func keep(resp *http.Response) {
	if resp == nil || resp.Body == nil {
		return
	}
	kept, err := io.ReadAll(io.LimitReader(resp.Body, maxDrain))
	_ = resp.Body.Close() // the answer was its status; there is nobody to tell
	body := io.Reader(bytes.NewReader(kept))
	switch {
	case err != nil:
		body = io.MultiReader(body, failing{err})
	case len(kept) == maxDrain:
		body = io.MultiReader(body, failing{io.ErrUnexpectedEOF})
	}
	resp.Body = io.NopCloser(body)
}

// failing is a reader that is at an end which is none.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

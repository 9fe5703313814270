package downstream

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/headrace/headrace/fault"
)

// undecodable is the rule of an answer that could not be read as what was asked for.
const undecodable = "undecodable answer"

// DecodeJSON gives the JSON of an answer, which a service or a proxy before it may have made: a page to log in with comes
// as 200 too. It reads the whole body, once, and closes it. Its error is that of [Check], whatever the answer has in it then;
// that of a body that broke off; or a *[DecodeError] for a success (the rest below 400) that is empty, no JSON, more than
// one JSON value, JSON that T does not take, or longer than Config.MaxAnswer. T is the zero value then. What is JSON and not
// what was asked for ({} is, and null) has no error: look whether the fields that you need are there.
//
// Such an answer means what a lost one does. After a safe method (GET, HEAD, OPTIONS, TRACE, asked by the first request where
// redirects were followed) it is fault.ClassTransient. After any other the request may have been carried out:
// fault.ClassAmbiguous, also under an idempotency key, since the key says that the request may be repeated (which a
// route's Repeat, Operation.Keyed and Plan know) and not that it was undone.
//
// To the breaker it is a failure of the dependency: in a route, and under [Dependency.Do] and [Run], because the call returns
// it; elsewhere because a request of [Dependency.Transport] is over when DecodeJSON is, if nobody has read the body before
// it. There nothing is tried again, for the answer is the caller's by then: put request and DecodeJSON into a [Run]. An
// answer of a client without a Transport may be decoded too; its dependency is then unknown, and 10 MiB are the longest.
func DecodeJSON[T any](resp *http.Response) (T, error) {
	var into, none T
	if err := decode(resp, &into); err != nil {
		return none, err // not the part that could be read
	}
	return into, nil
}

// errBrokenOff ends the call of an answer whose decoder panicked, or ended its goroutine: nothing was learnt of the
// dependency.
var errBrokenOff = fault.Say(errors.New("decoding did not return"), fault.Fault{Class: fault.ClassCancelled})

func decode(resp *http.Response, into any) (err error) {
	if err := Check(resp); err != nil {
		return err
	}
	if resp.Body == nil { // made by hand
		resp.Body = http.NoBody
	}
	a, err := hold(resp), errBrokenOff
	defer func() {
		err = a.judged(err)   // before Close, by which what wraps the body may end the context: that would be a cancelled call
		_ = resp.Body.Close() // all that was wanted is read
	}()
	err = decodeBody(resp, into)
	return err
}

// decodeBody says with its error what it means, but for what the body said by itself.
func decodeBody(resp *http.Response, into any) error {
	limit := int64(maxAnswer)
	if s := sendingOf(resp); s != nil {
		limit = int64(s.d.cfg.MaxAnswer)
	}
	f := cut(resp.Request != nil && safe(origin(resp.Request).Method))
	text, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case fault.Said(err):
		return err
	case err != nil:
		return fault.Say(err, f)
	}
	f.Rule = undecodable
	e := newDecodeError(resp, int64(len(text)))
	if e.TooLong = e.Length > limit; e.TooLong {
		e.Length = limit
		return fault.Say(e, f)
	}
	// Not a json.Decoder, which is content with one value that something else may follow.
	if e.Err = json.Unmarshal(text, into); e.Err == nil {
		return nil
	}
	return fault.Say(e, f)
}

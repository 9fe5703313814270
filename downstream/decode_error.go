package downstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
)

// DecodeError is an answer of success that [DecodeJSON] could not read as what was asked for. Its text has nothing of the
// answer in it, which may be personal or a secret: how it is declared, how long it is, and where the decoder gave up.
type DecodeError struct {
	// Dependency names who answered; "" if no Transport has sent the request.
	Dependency string
	// Method is that of the first request, where redirects were followed; "" if it is unknown.
	Method string
	// Code is the answer's status code, below 400.
	Code int
	// ContentType is the media type that the answer declares, without its parameters: "text/html"; "" if it declares none
	// that can be read.
	ContentType string
	// Length is how many bytes were read.
	Length int64
	// TooLong says that there were more than Length bytes, which is the limit then: Config.MaxAnswer.
	TooLong bool
	// Err is the decoder's, nil if the answer is TooLong. Its text may quote the answer: do not show it.
	Err error
}

func newDecodeError(resp *http.Response, length int64) *DecodeError {
	e := &DecodeError{Code: resp.StatusCode, ContentType: mediaType(resp.Header.Get("Content-Type")), Length: length}
	if resp.Request != nil {
		e.Method = method(origin(resp.Request))
	}
	if s := sendingOf(resp); s != nil {
		e.Dependency = s.d.cfg.Name
	}
	return e
}

// longestType is more than any media type that is in use has.
const longestType = 80

// mediaType is a header's, if it looks like one: it is the service's text, and gets into a log.
func mediaType(header string) string {
	t, _, err := mime.ParseMediaType(header)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) || !strings.Contains(t, "/") || len(t) > longestType {
		return ""
	}
	return t
}

// Error says what came, and what to do where that is known.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("%s %s: the answer (%s) %s", e.who(), e.status(), e.what(), e.why())
}

// Unwrap gives Err.
func (e *DecodeError) Unwrap() error { return e.Err }

// who is whom fault.StatusError names.
func (e *DecodeError) who() string {
	switch {
	case e.Dependency != "":
		return e.Dependency + ":"
	case e.Method != "":
		return e.Method + ":"
	}
	return http.MethodPost + ":"
}

func (e *DecodeError) status() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", e.Code, http.StatusText(e.Code)))
}

func (e *DecodeError) what() string {
	declared := e.ContentType
	if declared == "" {
		declared = "of no known type"
	}
	length := fmt.Sprintf("%d bytes", e.Length)
	if e.TooLong {
		length = "more than " + length
	}
	return declared + ", " + length
}

// why names the decoder's reason without its words, which quote what it could not read. Nor does it name the field: by
// the encoding/json of Go 1.27 the path to it has the keys of maps in it.
func (e *DecodeError) why() string {
	var syntax *json.SyntaxError
	var misfit *json.UnmarshalTypeError
	switch {
	case e.TooLong && e.Dependency == "":
		return "is too long: if it is what was asked for send the request by a Transport, whose Config.MaxAnswer may be more"
	case e.TooLong:
		return "is too long: raise Config.MaxAnswer of the dependency if it is what was asked for"
	case e.Length == 0:
		return "is empty: where that is a success (204) look at the status, and do not decode"
	case errors.As(e.Err, &syntax):
		return fmt.Sprintf("is no JSON, by byte %d: see whether something else answers in its place, a proxy perhaps", syntax.Offset)
	case errors.As(e.Err, &misfit):
		return fmt.Sprintf("is JSON of another shape, with a %s for a Go %v by byte %d: compare the type with what the service sends",
			kindOf(misfit), misfit.Type, misfit.Offset)
	}
	return fmt.Sprintf("is JSON that its Go type refuses, with a %T", e.Err)
}

// kindOf leaves out the value of a number, and what somebody's own UnmarshalJSON may have put there.
func kindOf(e *json.UnmarshalTypeError) string {
	kind, _, _ := strings.Cut(e.Value, " ")
	switch kind {
	case "string", "number", "bool", "array", "object", "null":
		return kind
	}
	return "value"
}

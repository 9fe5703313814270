package downstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
)

type charge struct {
	ID     string         `json:"id"`
	Amount int            `json:"amount"`
	At     time.Time      `json:"at"`
	By     map[string]int `json:"by"`
}

const loginPage = `<!doctype html><title>Please log in</title>`

// body is a body that knows whether it was closed.
type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

// says answers each request with text.
func says(contentType, text string) *base {
	return newBase(func(_ int, req *http.Request) (*http.Response, error) {
		resp, err := answer(req, 200, "Content-Type: "+contentType)
		resp.Body = &body{Reader: strings.NewReader(text)}
		return resp, err
	})
}

// decoded is what a handler does.
func decoded[T any](rt http.RoundTripper, req *http.Request) (T, error) {
	resp, err := (&http.Client{Transport: rt}).Do(req)
	if err != nil {
		var none T
		return none, err
	}
	defer resp.Body.Close() //nolint:errcheck // it is closed already; this is for linters
	return downstream.DecodeJSON[T](resp)
}

// A proxy's page to log in with came as 200, and the record was dead of it, although its charge may have been made.
func TestALoginPageIsNoVerdictOnTheRecord(t *testing.T) {
	t.Parallel()
	for _, l := range []struct {
		method string
		keyed  bool
		class  fault.Class
	}{
		{http.MethodGet, false, fault.ClassTransient},
		{http.MethodHead, false, fault.ClassTransient},
		{http.MethodOptions, false, fault.ClassTransient},
		{http.MethodPut, false, fault.ClassAmbiguous},
		{http.MethodDelete, false, fault.ClassAmbiguous},
		{http.MethodPost, false, fault.ClassAmbiguous},
		{http.MethodPost, true, fault.ClassAmbiguous},
	} {
		for how, context := range map[string]func(context.Context, *downstream.Dependency) context.Context{
			"InARoute": onBehalf, "InDo": counted, "Outside": func(ctx context.Context, _ *downstream.Dependency) context.Context { return ctx },
		} {
			t.Run(fmt.Sprintf("%s/%s/Key%t", how, l.method, l.keyed), func(t *testing.T) {
				t.Parallel()
				d := payments(t)
				req := request(context(t.Context(), d), t, l.method)
				if l.keyed {
					withKey(req)
				}
				_, err := decoded[charge](d.Transport(says("text/html; charset=utf-8", loginPage)), req)
				f := new(fault.Classifier).ClassifyCall(req.Context(), err)
				require.Equal(t, l.class.String(), f.Class.String())
				require.Equal(t, "undecodable answer", f.Rule)
				require.Equal(t, fault.SaysDown, f.Evidence("payments"))
				require.EqualError(t, err, "payments: 200 OK: the answer (text/html, 43 bytes) is no JSON, by byte 1: "+
					"see whether something else answers in its place, a proxy perhaps")
				var e *downstream.DecodeError
				require.ErrorAs(t, err, &e)
				require.Equal(t, l.method, e.Method)
			})
		}
	}
}

// http.Client makes a GET of a POST that is redirected to the page to log in with: what was asked for is the POST.
func TestALoginPageAfterARedirectIsJudgedByTheFirstRequest(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/login" {
			http.Redirect(w, req, "/login", http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, loginPage)
	}))
	t.Cleanup(proxy.Close)
	for method, class := range map[string]fault.Class{http.MethodPost: fault.ClassAmbiguous, http.MethodGet: fault.ClassTransient} {
		for how, client := range map[string]http.RoundTripper{"Plain": proxy.Client().Transport, "Transport": payments(t).Transport(proxy.Client().Transport)} {
			t.Run(method+how, func(t *testing.T) {
				t.Parallel()
				req, err := http.NewRequestWithContext(t.Context(), method, proxy.URL, http.NoBody)
				require.NoError(t, err)
				_, err = decoded[charge](client, req)
				require.ErrorContains(t, err, "text/html")
				require.Equal(t, class.String(), new(fault.Classifier).ClassifyCall(t.Context(), err).Class.String())
			})
		}
	}
}

func TestDecodeJSON(t *testing.T) {
	t.Parallel()
	get := func(t *testing.T, b *base, change ...func(*downstream.Config)) (charge, error) {
		t.Helper()
		return decoded[charge](payments(t, change...).Transport(b), request(t.Context(), t, http.MethodGet))
	}

	t.Run("GivesWhatWasAnswered", func(t *testing.T) {
		t.Parallel()
		got, err := get(t, says("application/json", `{"id":"c-7","amount":12}`+"\n"))
		require.NoError(t, err)
		require.Equal(t, charge{ID: "c-7", Amount: 12}, got)
	})
	t.Run("GivesNothingOfHalfAnAnswer", func(t *testing.T) {
		t.Parallel()
		got, err := get(t, says("application/json", `{"id":"c-7","amount":"twelve"}`))
		require.ErrorContains(t, err, "(application/json, 30 bytes) is JSON of another shape, with a string for a Go int by byte 29: ")
		require.Zero(t, got)
	})
	t.Run("TakesNothingBehindTheValue", func(t *testing.T) {
		t.Parallel()
		_, err := get(t, says("application/json", `{"id":"c-7"}{"id":"c-8"}`))
		require.ErrorContains(t, err, "is no JSON, by byte 13: ")
	})
	t.Run("TakesNoEmptyAnswer", func(t *testing.T) {
		t.Parallel()
		_, err := get(t, says("", ""))
		require.ErrorContains(t, err, "200 OK: the answer (of no known type, 0 bytes) is empty: ")
		_, err = downstream.DecodeJSON[charge](&http.Response{StatusCode: 204})
		require.ErrorContains(t, err, "POST: 204 No Content: the answer (of no known type, 0 bytes) is empty: ")
		require.Equal(t, fault.ClassAmbiguous, new(fault.Classifier).ClassifyCall(t.Context(), err).Class, "nobody knows what it answers")
	})
	t.Run("LeavesAFailureToCheck", func(t *testing.T) {
		t.Parallel()
		b := newBase(func(_ int, req *http.Request) (*http.Response, error) { return answer(req, 402) })
		_, err := get(t, b)
		require.EqualError(t, err, "payments: 402 Payment Required")
		require.Equal(t, fault.ClassPermanent, new(fault.Classifier).ClassifyCall(t.Context(), err).Class)
	})
	t.Run("SaysOfABrokenBodyThatItBrokeOff", func(t *testing.T) {
		t.Parallel()
		b := newBase(func(_ int, req *http.Request) (*http.Response, error) {
			resp, err := answer(req, 200)
			resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"id":`), failing{io.ErrUnexpectedEOF}))
			return resp, err
		})
		_, err := get(t, b)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Equal(t, "safe http method", new(fault.Classifier).ClassifyCall(t.Context(), err).Rule)
		_, err = decoded[charge](b, request(t.Context(), t, http.MethodGet))
		require.Equal(t, "safe http method", new(fault.Classifier).ClassifyCall(t.Context(), err).Rule, "without a Transport")
		_, err = decoded[charge](b, request(t.Context(), t, http.MethodPost))
		require.Equal(t, "sent", new(fault.Classifier).ClassifyCall(t.Context(), err).Rule)

		_, err = downstream.DecodeJSON[charge](&http.Response{
			StatusCode: 200, Body: io.NopCloser(failing{fault.RetryAfter(io.ErrUnexpectedEOF, 3*time.Second)}),
		})
		require.Equal(t, 3*time.Second, new(fault.Classifier).ClassifyCall(t.Context(), err).RetryAfter, "who has said it knows better")
	})
	t.Run("ReadsNoMoreThanMaxAnswer", func(t *testing.T) {
		t.Parallel()
		bounded := func(c *downstream.Config) { c.MaxAnswer = 12 }
		got, err := get(t, says("application/json", `{"id":"c-7"}`), bounded)
		require.NoError(t, err)
		require.Equal(t, "c-7", got.ID)
		_, err = get(t, says("application/json", `{"id":"c-70"}`), bounded)
		require.EqualError(t, err, "payments: 200 OK: the answer (application/json, more than 12 bytes) is too long: "+
			"raise Config.MaxAnswer of the dependency if it is what was asked for")

		endless := &body{Reader: zeros{}}
		_, err = get(t, newBase(func(_ int, req *http.Request) (*http.Response, error) {
			resp, err := answer(req, 200)
			resp.Body = endless
			return resp, err
		}))
		require.ErrorContains(t, err, "more than 10485760 bytes")
		require.True(t, endless.closed)
	})
	t.Run("ClosesTheBody", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{`{"id":"c-7"}`, loginPage} {
			b := &body{Reader: strings.NewReader(text)}
			_, _ = downstream.DecodeJSON[charge](&http.Response{StatusCode: 200, Body: b}) // the body is what is looked at
			require.True(t, b.closed, text)
		}
	})
	t.Run("HasALimitThatCanBe", func(t *testing.T) {
		t.Parallel()
		_, err := downstream.New(downstream.Config{Name: "payments", MaxAnswer: -1})
		require.ErrorContains(t, err, `downstream "payments": MaxAnswer (-1) must be at least 1`)
	})
}

// leaky is a type whose decoder quotes all that it was given.
type leaky struct{}

func (*leaky) UnmarshalJSON(b []byte) error { return errors.New("cannot take " + string(b)) }

// lying passes the answer off as what the standard library says.
type lying struct{}

func (*lying) UnmarshalJSON(b []byte) error {
	return &json.UnmarshalTypeError{Value: string(b), Field: string(b)}
}

func TestNothingOfAnAnswerIsInTheErrorOfDecoding(t *testing.T) {
	t.Parallel()
	const secret = "4111111111111111"
	for name, decode := range map[string]func(*http.Response) error{
		`"` + secret + `"`:                      into[charge],
		secret:                                  into[string],
		`{"by":{"` + secret + `":"x"}}`:         into[charge],
		`{"amount":` + secret + secret + `}`:    into[charge],
		`{"at":"` + secret + `"}`:               into[charge],
		`{"id":"a"} ` + secret:                  into[charge],
		`<` + secret + `>`:                      into[charge],
		`{"` + secret + `":1}`:                  into[leaky],
		`["` + secret + `"]`:                    into[lying],
		`[ "` + secret + `" , ` + secret + ` ]`: into[[]int],
	} {
		err := decode(&http.Response{
			StatusCode: 200, Body: io.NopCloser(strings.NewReader(name)),
			Header: http.Header{"Content-Type": {"card/" + strings.Repeat("4", 100) + "; number=" + secret}},
		})
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "4111", name)
		require.NotContains(t, err.Error(), "4444", name)
		var e *downstream.DecodeError
		require.ErrorAs(t, err, &e)
		require.Error(t, e.Err, "the decoder's own is there for who asks for it")
	}
}

func into[T any](resp *http.Response) error {
	_, err := downstream.DecodeJSON[T](resp)
	return err
}

func TestAConnectionIsUsedAgainAfterAnAnswerThatCannotBeRead(t *testing.T) {
	t.Parallel()
	var conns atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, loginPage+strings.Repeat(" ", 100<<10))
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	d := payments(t, func(c *downstream.Config) { c.Breaker.MinRequests = 100 })
	for range 3 {
		ctx := downstream.WithPermit(t.Context(), downstream.Permit{Dependency: d, ID: uuid.Max})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody)
		require.NoError(t, err)
		_, err = decoded[charge](d.Transport(s.Client().Transport), req)
		require.ErrorContains(t, err, "is no JSON")
	}
	require.Equal(t, int64(1), conns.Load())
}

func FuzzDecodeJSON(f *testing.F) {
	for _, text := range []string{``, `{"id":"c-7","amount":12}`, loginPage, `{"amount":"12"}`, `{"at":"x"}`, `{"by":{"k":[]}}`, `null`, `{}{}`, "\xff"} {
		f.Add([]byte(text), "application/json; charset=utf-8")
		f.Add([]byte(text), "text/html;;")
	}
	f.Fuzz(func(t *testing.T, text []byte, contentType string) {
		resp := &http.Response{
			StatusCode: 200, Header: http.Header{"Content-Type": {contentType}}, Body: &body{Reader: strings.NewReader(string(text))},
			Request: &http.Request{Method: http.MethodGet},
		}
		got, err := downstream.DecodeJSON[charge](resp)
		var want charge
		refused := json.Unmarshal(text, &want)
		require.Equal(t, refused == nil, err == nil, "%v against %v", refused, err)
		require.True(t, resp.Body.(*body).closed)
		if err == nil {
			require.Equal(t, want, got)
			return
		}
		require.Zero(t, got)
		require.Regexp(t, textOfDecoding, err.Error())
		require.Equal(t, fault.ClassTransient, new(fault.Classifier).ClassifyCall(t.Context(), err).Class)
	})
}

// textOfDecoding is all that may be said of an answer, whatever is in it: words of ours, numbers, its media type and types
// of Go.
var textOfDecoding = regexp.MustCompile(`^GET: 200 OK: the answer \((of no known type|[a-z0-9!#$%&'*+.^_{|}~/\x60-]{3,80}), \d+ bytes\) ` +
	`is (empty|no JSON, by byte \d+|JSON of another shape, with a (string|number|bool|array|object|null|value) for a Go \S+ by byte \d+|` +
	`JSON that its Go type refuses, with a \*\S+)(:[a-zA-Z ,()0-9]*)?$`)
